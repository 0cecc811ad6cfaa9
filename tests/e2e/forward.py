#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# forward.py - forward calls with tensors in memory that is passed as descriptors. With the fake
# engine, whose rows tell token and position: what they give, and what hostile clients get. With a
# real one: the bits that REFERENCE, a program with the model in its own process, gives, however they
# are asked for, beside others and in pieces.
import array
import base64
import fcntl
import json
import mmap
import os
import resource
import socket
import subprocess
import sys
import threading
import time

from daemon import MODEL, Daemon, at_once, beside, check, conclude, connect, directory, read_answer, request_bytes, until

FAKE = "fake" in os.path.basename(os.environ["TXDAD"])
WORDS = [17, 4, 250, 33, 8, 91, 5, 12, 77, 140, 6, 2, 19, 301, 44, 23, 10, 9, 57, 81, 3, 64, 99, 150, 35, 7] * 4
FOUR = array.array("i", [1, 2, 3, 4]).tobytes()


def memory(data=b"", size=0, seals=0):
    fd = os.memfd_create("t", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if size:
        os.posix_fallocate(fd, 0, size)
    os.pwrite(fd, data, 0)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def tensor(fd, shape, **more):
    return {"fd": fd, "shape": shape, **more}


def send(s, data, fds):
    # send_fds() may send a part.
    s.sendall(data[socket.send_fds(s, [data], fds):])


def forward(d, body, fds):
    s, = connect(d.path)
    with s:
        send(s, request_bytes("POST", "/v1/forward", body), fds)
        status, data = read_answer(s)
        return status, data.decode()


class Call:
    """A forward call of @ids, and what it gave."""

    def __init__(self, d, ids, rows, kind="i", offset=0, hidden=False):
        n = len(ids) if rows == "all" else 1 if rows == "last" else len(rows)
        width = d.hidden if hidden else 0
        tokens = memory(b"\0" * offset + array.array(kind, ids).tobytes())
        out = memory(size=offset + 4 * n * (d.vocab + width))
        body = {"rows": rows, "input_ids": tensor(0, [len(ids)], offset=offset, dtype="int64" if kind == "q" else "int32"),
                "logits": tensor(1, [n, d.vocab], offset=offset, dtype="float32")}
        if hidden:
            body["hidden_states"] = tensor(1, [n, width], offset=offset + 4 * n * d.vocab)
        status, answer = forward(d, body, [tokens, out])
        computed = rows[-1] + 1 if isinstance(rows, list) else len(ids)
        check(status == 200 and f'"rows":{n}' in answer and f'"prompt_tokens":{computed}' in answer,
              f"rows {rows}: {status} {answer}")
        self.logits = os.pread(out, 4 * n * d.vocab, offset)
        self.hidden = os.pread(out, 4 * n * width, offset + 4 * n * d.vocab)
        os.close(tokens)
        os.close(out)


def check_rows(d, reference):
    """Every way to ask for rows gives the same, also beside others."""
    width, n = 4 * d.vocab, len(WORDS)
    for rows, kind, offset in (("all", "i", 0), ("last", "i", 8), ("all", "q", 4096),
                               ([0, 1, 40, 63, 64, n - 1], "i", 4100), ([5], "q", 0)):
        places = range(n) if rows == "all" else [n - 1] if rows == "last" else rows
        want = b"".join(reference[width * p:width * (p + 1)] for p in places)
        check(Call(d, WORDS, rows, kind, offset).logits == want, f"rows {rows} are not the reference's")
    lengths = [1 + i * 13 % n for i in range(16)]
    body = {"prompt": WORDS[:9], "max_tokens": 24, "ignore_eos": True}
    with beside(lambda: check(d.post("/v1/completions", body)[0] == 200, "a completion beside forward calls")):
        calls = at_once([lambda i=i, n=n: Call(d, WORDS[:n], "all" if i % 2 else "last").logits
                         for i, n in enumerate(lengths)], 16)
    for i, (n, logits) in enumerate(zip(lengths, calls)):
        check(logits == reference[0 if i % 2 else width * (n - 1):width * n], f"call {i} differs among others")


def check_hidden(d, reference):
    """Hidden states are those of which /v1/embeddings makes its vectors."""
    for n in (1, 40, len(WORDS)):
        call = Call(d, WORDS[:n], "all", hidden=True)
        check(call.logits == reference[:4 * d.vocab * n], "logits beside hidden states")
        status, answer = d.post("/v1/embeddings", {"input": WORDS[:n], "pooling": "last", "normalize": False,
                                                   "encoding_format": "base64"})
        want = base64.b64decode(answer["data"][0]["embedding"]) if status == 200 else answer
        check(call.hidden[4 * d.hidden * (n - 1):] == want,
              f"the hidden state behind token {n - 1} is not that of its embedding")


def expect(d, status, words, change, fds=None):
    """A call that is changed so gets this error; every descriptor is closed behind it."""
    own = [memory(FOUR), memory(size=4 * d.vocab)]
    body = {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, d.vocab])}
    for key, value in change.items():
        where = body
        *path, last = key.split(".")
        for k in path:
            where = where.setdefault(k, {})
        where[last] = value
        if value is None:
            del where[last]
    got, answer = forward(d, body, own if fds is None else fds)
    check(got == status and words.replace('"', '\\"') in answer, f"{change}: {got} {answer}; not {status} '{words}'")
    for fd in own:
        os.close(fd)


def check_bodies(d):
    v = d.vocab
    for status, words, change in (
            (400, "input_ids is missing", {"input_ids": None}),
            (400, "logits or hidden_states is required", {"logits": None}),
            (400, "logits must be an object, not 3", {"logits": 3}),
            (400, "logits.fd is 2; 2 descriptors came", {"logits.fd": 2}),
            (400, "input_ids.fd must be an integer between 0 and 15, not 16", {"input_ids.fd": 16}),
            (400, "input_ids.fd is missing", {"input_ids.fd": None}),
            (400, "input_ids.shape must be an array of 1 integer", {"input_ids.shape": [2, 2]}),
            (400, "input_ids.shape must be an array of 1 integer", {"input_ids.shape": [0]}),
            (400, "logits.shape is [1, 7]", {"logits.shape": [1, 7]}),
            (400, "logits.shape is [2, %d]" % v, {"logits.shape": [2, v]}),
            (400, "logits.dtype must be \"float32\", not \"bfloat16\"", {"logits.dtype": "bfloat16"}),
            (400, "input_ids.dtype must be \"int32\" or \"int64\"", {"input_ids.dtype": "float32"}),
            (400, "logits.offset is 2; it must be a multiple of 4", {"logits.offset": 2}),
            (400, "logits: offset 4 and %d bytes" % (4 * v), {"logits.offset": 4}),
            (400, "input_ids: offset 4611686018427387900 and 16 bytes", {"input_ids.offset": 4611686018427387900}),
            (400, "input_ids.offset must be an integer", {"input_ids.offset": 2**63}),
            (400, "the model's context is", {"input_ids.shape": [1 << 31]}),
            (400, "rows must be \"last\", \"all\" or an array", {"rows": []}),
            (400, "rows must hold rising positions below 4", {"rows": [1, 1]}),
            (400, "rows must hold rising positions below 4", {"rows": [4]}),
            (404, "does not exist", {"model": "other"}),
            (400, "logits: offset 0 and", {"logits.fd": 0})):
        expect(d, status, words, change)


def check_memory(d):
    """What is no memory, or not all of it there; test_descriptors has the other kinds."""
    v, good, out = d.vocab, memory(FOUR), memory(size=4 * d.vocab)
    for name, flags in ((sys.executable, os.O_RDONLY), ("/dev/zero", os.O_RDWR), ("/proc", os.O_RDONLY),
                        ("/proc/self/mem", os.O_RDONLY)):
        expect(d, 400, "input_ids: the descriptor is not memory that can be used", {}, [os.open(name, flags), out])
    # Blocks that lie elsewhere in the file do not make up for a hole; nothing is made in its place.
    holed = memory(size=4096)
    os.ftruncate(holed, 16 * v)
    os.posix_fallocate(holed, 8 * v, 8 * v)
    blocks = os.fstat(holed).st_blocks
    for words, fds, change in (
            ("logits: the descriptor is open for reading only", [good, os.open(f"/proc/self/fd/{out}", os.O_RDONLY)], {}),
            ("O_PATH", [good, os.open(f"/proc/self/fd/{out}", os.O_PATH)], {}),
            ("beyond the end of the descriptor's memory of %d bytes" % (4 * v - 1), [good, memory(size=4 * v - 1)], {}),
            ("has holes", [good, holed], {}),
            ("logits and input_ids overlap", [memory(size=4 * v)], {"logits.fd": 0}),
            ("logits and input_ids overlap", [o := memory(size=4 * v), os.dup(o)], {}),
            ("token id -1 at position 2", [memory(array.array("i", [1, 2, -1, 4]).tobytes()), out], {}),
            ("token id %d at position 0; the vocabulary has %d" % (v, v),
             [memory(array.array("i", [v, 2, 1, 4]).tobytes()), out], {}),
            ("token id 4294967297 at position 1", [memory(array.array("q", [1, 2**32 + 1, 1, 4]).tobytes()), out],
             {"input_ids.dtype": "int64"}),
            ("0 descriptors came", [], {}), ("more than 16 descriptors", [out] * 250, {})):
        expect(d, 400, words, change, fds)
    check(os.fstat(holed).st_blocks == blocks, "the daemon has made pages of an output")
    # A sealed input is what it should be; tokens may lie in a hole; one memfd may hold all; a file of a tmpfs will do.
    hole = memory()
    os.ftruncate(hole, 1 << 20)
    shm = os.open(f"/dev/shm/txda-forward-{os.getpid()}", os.O_RDWR | os.O_CREAT)
    os.unlink(f"/dev/shm/txda-forward-{os.getpid()}")
    os.posix_fallocate(shm, 0, 4 * v)
    sealed = memory(FOUR, seals=fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    for tokens, logits, fds in ((tensor(0, [4], offset=65536), tensor(1, [1, v]), [hole, out]),
                                (tensor(0, [4]), tensor(1, [1, v]), [sealed, shm]),
                                (tensor(0, [4]), tensor(0, [1, v], offset=16), [memory(FOUR, size=16 + 4 * v)])):
        status, answer = forward(d, {"input_ids": tokens, "logits": logits}, fds)
        check(status == 200, f"{tokens}, {logits}: {answer}")
    check(not os.fstat(hole).st_blocks, "the daemon has made pages of an input")


def check_connections(d):
    """Descriptors without a request, with another one, one after the other, cut off; test_descriptors has to which they belong."""
    v, before, health = d.vocab, d.sample_at_rest()["fds"], request_bytes("GET", "/health")
    data = request_bytes("POST", "/v1/forward", {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])})
    fds = [memory(FOUR), memory(size=4 * v)]
    s, = connect(d.path)
    # With other requests they are closed, and do not count for the next one.
    send(s, health, fds)
    check(read_answer(s)[0] == 200, "descriptors with another request")
    s.sendall(data)
    check(b"0 descriptors came" in read_answer(s)[1], "descriptors of the request before count")
    # One by one, and with an urgent byte, which is one as any other.
    send(s, data[:20], fds[:1])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds[1:]))]
    try:
        s.sendmsg([data[20:21]], rights, socket.MSG_OOB)
    except OSError:  # the kernel has none
        s.sendmsg([data[20:21]], rights)
    s.sendall(data[21:])
    status, answer = read_answer(s)
    check(status == 200, f"descriptors with an urgent byte: {status} {answer}")
    s.close()
    for text in (b"\r\n\r\n", b"POST /v1/forward HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", b"G",
                 b"nonsense\r\n\r\n"):
        for n in (1, 16, 17, 200):
            s, = connect(d.path)
            send(s, text, fds[:1] * n)
            s.close()
    # A client that leaves in the middle, with half a request, a whole one, and memory that shrinks.
    data = request_bytes("POST", "/v1/forward", {"rows": "all", "input_ids": tensor(0, [64]), "logits": tensor(1, [64, v])})
    for i in range(60):
        many, big = memory(array.array("i", [1] * 64).tobytes()), memory(size=4 * v * 64)
        s, = connect(d.path)
        send(s, data[:len(data) - i % 3 * 20], [many, big])
        if i % 2:
            os.ftruncate(big, 0)
            os.ftruncate(many, 0)
        s.close()
        os.close(big)
        os.close(many)
    check(until(lambda: d.sample()["fds"] <= before), f"{d.sample()['fds']} descriptors are open, {before} were before")


def check_shrinking(d):
    """Memory that goes away while it is written is an error, and no more."""
    v, n, result = d.vocab, 512, []
    body = {"rows": "all", "input_ids": tensor(0, [n]), "logits": tensor(1, [n, v])}
    for _ in range(20):  # all may be written before it goes
        tokens, out = memory(array.array("i", [1 + i % 100 for i in range(n)]).tobytes()), memory(size=4 * v * n)
        t = threading.Thread(target=lambda: result.append(forward(d, body, [tokens, out])))
        t.start()
        with mmap.mmap(out, 4 * v) as m:
            while t.is_alive() and not any(m[:64]):  # the first row is there: it is being written
                time.sleep(0.0005)
        os.ftruncate(out, 4 * v)
        t.join()
        os.close(tokens)
        os.close(out)
        if result[-1][0] != 200:
            break
    check(result[-1][0] == 400 and "was removed while it was written" in result[-1][1], f"shrinking memory: {result[-1]}")


def check_full():
    """Who holds all that a user may waits with the next ones, and with nothing else."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))  # of which clients have 64, and each user 48
    with Daemon("--model", "m=" + MODEL, model=False) as d:
        open_model(d)
        v = d.vocab
        fds = [memory(FOUR), memory(size=4 * v)]
        held = connect(d.path, n=3)
        for s in held:
            send(s, b"POST ", fds * 8)
        check(until(lambda: d.metric("http_held_descriptors") == 48), "48 descriptors are not held")
        waiting, gone = connect(d.path, n=2)
        for s in waiting, gone:
            send(s, request_bytes("POST", "/v1/forward", {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])}), fds)
        check(d.get("/health")[0] == 200, "a request without descriptors while there is no room for them")
        gone.close()
        for s in held:
            s.close()
        status, answer = read_answer(waiting)
        check(status == 200, f"when there was room again: {status} {answer}")
        check(until(lambda: d.metric("http_held_descriptors") == 0), "descriptors stay")


def open_model(d):
    info = json.loads(d.get("/v1/models/m")[1])
    d.vocab, d.hidden = info["vocab_size"], info["hidden_size"]


def fake():
    with Daemon("--model", "m=" + MODEL, model=False) as d:
        open_model(d)
        call = Call(d, WORDS, "all", hidden=True)
        check(call.hidden == array.array("f", [(w >> k & 1) + 1 for w in WORDS for k in range(16)]).tobytes(),
              "hidden states")
        want = array.array("f", [(w * 31 + p * 7 + t) % 4099 for p, w in enumerate(WORDS) for t in range(d.vocab)]).tobytes()
        check(call.logits == want, "logits")
        for part in check_bodies, check_memory, check_connections, check_shrinking:
            part(d)
        check_rows(d, want)
        fds = [memory(size=4 * 512), memory(size=4 * 512 * d.vocab)]
        status, answer = forward(d, {"rows": "all", "timeout": 0.01, "input_ids": tensor(0, [512]),
                                     "logits": tensor(1, [512, d.vocab])}, fds)
        check(status == 504 and '"code":"timeout"' in answer, f"a timeout: {status} {answer}")
    check_full()


def real():
    """Against libtxda alone: on one chip and on two, prompts whole and in pieces, beside speculative decoding."""
    with directory() as where:
        def compiled(name, model, *options):
            subprocess.run([os.environ["TXDA_COMPILE"], model, "-q", "--max-tokens", "256", "--max-seqs", "16", *options,
                            "-o", f"{where}/{name}"], check=True)
        compiled("tp1", MODEL)
        compiled("tp2", MODEL, "--tp", "2")
        compiled("hidden", MODEL, "--tp", "2", "--hidden")
        compiled("draft", os.environ["DRAFT"])
        env = {"TXDA_CMODEL": "chips=2,mem=1G,cores=2"}
        for name, options in (("tp1", []), ("tp2", []),
                              ("hidden", ["--max-num-batched-tokens", "24", "--max-num-seqs", "8", "--kv-cache-memory", "2M"]),
                              ("tp1", ["--draft-model", where + "/draft", "--num-speculative-tokens", "3",
                                       "--max-num-batched-tokens", "40"])):
            reference = subprocess.run([os.environ["REFERENCE"], f"{where}/{name}", *map(str, WORDS)], stdout=subprocess.PIPE,
                                       check=True, env={**os.environ, "TXDA_BACKEND": "cmodel", **env}).stdout
            with Daemon("--model", f"m={where}/{name}", *options, model=False, env=env) as d:
                open_model(d)
                before = d.sample_at_rest()["fds"]
                check_rows(d, reference)
                if name == "hidden":
                    check_hidden(d, reference)
                else:
                    expect(d, 400, "has no hidden states output", {"hidden_states": tensor(1, [1, 256])})
                check(until(lambda: d.sample()["fds"] <= before), f"descriptors: {before}, then {d.sample()['fds']}")


(fake if FAKE else real)()
conclude()
