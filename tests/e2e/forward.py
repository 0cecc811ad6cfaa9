#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# forward.py TXDAD MODEL [REFERENCE [OPTION...]] - forward calls with tensors in memory that is passed
# as descriptors: what they give, and what hostile clients get.
#
# With REFERENCE, a program that gives the logits of MODEL, a case dir then, they must be those to the
# bit: alone, among others, in pieces, from the prefix cache; hostile clients are left out. Without,
# the daemon is the one with the fake engine, and the rows are its numbers.
import array
import base64
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

WORDS = [17, 4, 250, 33, 8, 91, 5, 12, 77, 140, 6, 2, 19, 301, 44, 23, 10, 9, 57, 81, 3, 64, 99, 150, 35, 7] * 4
F_ADD_SEALS = 1033
F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 2, 4, 8
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text)


class Daemon:
    def __init__(self, txdad, model, options, dir, files=None):
        self.socket = os.path.join(dir, "txda.sock")
        self.log = open(os.path.join(dir, "txdad.log"), "ab")
        self.process = subprocess.Popen([txdad, "--model", "m=" + model, "--socket", self.socket, *options], stderr=self.log,
                                        preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        for _ in range(1200):
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit("the daemon did not become healthy")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60):
            fail("the daemon ended with %d" % self.process.returncode)

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(self.socket)
        return s

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def ask(self, method, path, body=None):
        s = self.connect()
        send(s, method, path, body, [])
        return read_answer(s)

    def text(self, path):
        s = self.connect()
        s.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
        with s, s.makefile("rb") as f:
            return f.read()

    def forward(self, body, fds):
        s = self.connect()
        send(s, "POST", "/v1/forward", body, fds)
        return read_answer(s)


def request_bytes(method, path, body):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
            (method.encode(), path.encode(), len(data))) + data


def send(s, method, path, body, fds):
    data = request_bytes(method, path, body)
    # send_fds() may send a part.
    n = socket.send_fds(s, [data], fds) if fds else 0
    s.sendall(data[n:])


def read_answer(s, stream=None):
    """Of a connection that has one request, which is closed, or of the stream of one that has more."""
    f = stream or s.makefile("rb")
    status = int(f.readline().split()[1])
    length = 0
    while (line := f.readline().strip()):
        name, value = line.split(b":", 1)
        length = int(value) if name.lower() == b"content-length" else length
    data = f.read(length)
    if not stream:
        f.close()
        s.close()
    return status, json.loads(data)


def memory(data=b"", size=0, seals=0):
    fd = os.memfd_create("t", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    if size:
        os.posix_fallocate(fd, 0, size)
    os.pwrite(fd, data, 0)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def tensor(fd, shape, **more):
    return {"fd": fd, "shape": shape, **more}


class Call:
    """A forward call of @ids, and what it gave."""

    def __init__(self, daemon, ids, rows, kind="i", hidden=False, offset=0):
        n = len(ids) if rows == "all" else 1 if rows == "last" else len(rows)
        self.rows, vocab, width = n, daemon.vocab, daemon.hidden
        data = array.array(kind, ids).tobytes()
        self.tokens = memory(b"\0" * offset + data)
        self.out = memory(size=offset + 4 * n * (vocab + width))
        self.body = {"model": "m", "rows": rows,
                     "input_ids": tensor(0, [len(ids)], offset=offset, dtype="int64" if kind == "q" else "int32"),
                     "logits": tensor(1, [n, vocab], offset=offset, dtype="float32")}
        if hidden:
            self.body["hidden_states"] = tensor(1, [n, width], offset=offset + 4 * n * vocab)
        self.offset, self.size, self.width = offset, 4 * n * vocab, width if hidden else 0

    def run(self, daemon):
        self.status, self.answer = daemon.forward(self.body, [self.tokens, self.out])
        self.logits = os.pread(self.out, self.size, self.offset)
        self.hidden = os.pread(self.out, 4 * self.rows * self.width, self.offset + self.size)
        os.close(self.tokens)
        os.close(self.out)
        if self.status != 200:
            fail("forward: %d %s" % (self.status, self.answer))
        return self


def fake_rows(ids, rows):
    out = array.array("f")
    for p in rows:
        out.extend((ids[p] * 31 + p * 7 + t) % 4099 for t in range(4096))
    return out.tobytes()


def check_rows(daemon, reference, width):
    """Every way to ask for rows gives the reference's."""
    def part(rows):
        return b"".join(reference[4 * width * p:4 * width * (p + 1)] for p in rows)
    n = len(WORDS)
    for name, rows, kind, offset in (("all", "all", "i", 0), ("last", "last", "i", 8), ("again", "all", "q", 4096),
                                     ("list", [0, 1, 40, 63, 64, n - 1], "i", 4100 & ~3), ("early", [5], "q", 0)):
        call = Call(daemon, WORDS, rows, kind, offset=offset).run(daemon)
        wanted = range(n) if rows == "all" else [n - 1] if rows == "last" else rows
        if call.logits != part(wanted):
            fail("rows %s are not the reference's" % name)
        computed = rows[-1] + 1 if isinstance(rows, list) else n
        if call.answer.get("usage", {}).get("prompt_tokens") != computed or call.answer.get("rows") != len(wanted):
            fail("rows %s: %s" % (name, call.answer))


def check_company(daemon, reference, width):
    """Many at once, beside chats."""
    calls = [Call(daemon, WORDS[:1 + i * 13 % len(WORDS)], "all" if i % 2 else "last") for i in range(16)]
    chats = [threading.Thread(target=daemon.ask, args=("POST", "/v1/completions", {
        "prompt": WORDS[:9 + i], "max_tokens": 24, "ignore_eos": True})) for i in range(6)]
    threads = chats + [threading.Thread(target=c.run, args=(daemon,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, c in enumerate(calls):
        n = 1 + i * 13 % len(WORDS)
        if c.logits != reference[(0 if i % 2 else 4 * width * (n - 1)):4 * width * n]:
            fail("call %d differs among others" % i)


def check_hidden(daemon, reference, width):
    """Hidden states are those of which /v1/embeddings makes its vectors."""
    for n in (1, 40, len(WORDS)):
        call = Call(daemon, WORDS[:n], "all", hidden=True).run(daemon)
        if call.logits != reference[:4 * width * n]:
            fail("logits beside hidden states")
        for at in {0, n - 1}:
            status, answer = daemon.ask("POST", "/v1/embeddings", {
                "input": WORDS[:at + 1], "pooling": "last", "normalize": False, "encoding_format": "base64"})
            wanted = base64.b64decode(answer["data"][0]["embedding"]) if status == 200 else answer
            if call.hidden[4 * daemon.hidden * at:4 * daemon.hidden * (at + 1)] != wanted:
                fail("the hidden state behind token %d is not that of its embedding" % at)


def expect(daemon, status, words, change, fds=None, param=None):
    """A call that is changed so gets this error; every descriptor is closed behind it."""
    tokens, out = memory(array.array("i", WORDS[:4]).tobytes()), memory(size=4 * daemon.vocab)
    body = {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, daemon.vocab])}
    for key, value in change.items():
        where = body
        *path, last = key.split(".")
        for k in path:
            where = where.setdefault(k, {})
        if value is None:
            del where[last]
        else:
            where[last] = value
    got, answer = daemon.forward(body, [tokens, out] if fds is None else fds)
    os.close(tokens)
    os.close(out)
    message = json.dumps(answer)
    if got != status or words not in answer.get("error", {}).get("message", ""):
        fail("%s: %d %s; not %d '%s'" % (change, got, message, status, words))
    if param and answer["error"]["param"] != param:
        fail("%s: param %s, not %s" % (change, answer["error"]["param"], param))


def check_bodies(daemon):
    v = daemon.vocab
    for status, words, change in (
            (400, "input_ids is missing", {"input_ids": None}),
            (400, "logits or hidden_states is required", {"logits": None}),
            (400, "logits must be an object, not 3", {"logits": 3}),
            (400, "logits.fd is 2; 2 descriptors came", {"logits.fd": 2}),
            (400, "input_ids.fd must be an integer between 0 and 15, not 16", {"input_ids.fd": 16}),
            (400, "input_ids.fd must be an integer between 0 and 15, not -1", {"input_ids.fd": -1}),
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
            (400, "rows must be \"last\", \"all\" or an array", {"rows": "first"}),
            (400, "rows must be \"last\", \"all\" or an array", {"rows": []}),
            (400, "rows must hold rising positions below 4", {"rows": [1, 1]}),
            (400, "rows must hold rising positions below 4", {"rows": [4]}),
            (404, "does not exist", {"model": "other"}),
            (400, "logits: offset 0 and", {"logits.fd": 0}),
    ):
        expect(daemon, status, words, change)


def check_memory(daemon):
    v = daemon.vocab
    good, out = memory(array.array("i", [1, 2, 3, 4]).tobytes()), memory(size=4 * v)
    pair = socket.socketpair()
    pipe = os.pipe()
    read_only = os.open("/proc/self/fd/%d" % out, os.O_RDONLY)
    write_only = os.open("/proc/self/fd/%d" % good, os.O_WRONLY)
    o_path = os.open("/proc/self/fd/%d" % out, os.O_PATH)
    others = [os.open(sys.executable, os.O_RDONLY), os.open("/dev/zero", os.O_RDWR), os.open("/proc", os.O_RDONLY), os.eventfd(0),
              os.open("/proc/self/mem", os.O_RDONLY), pair[0].fileno(), pipe[0]]
    for fd in others:
        expect(daemon, 400, "input_ids: the descriptor is not memory that can be used", {}, [fd, out], "input_ids")
    expect(daemon, 400, "logits: the descriptor is open for reading only", {}, [good, read_only])
    expect(daemon, 400, "input_ids: the descriptor is open for writing only", {}, [write_only, out])
    expect(daemon, 400, "O_PATH", {}, [good, o_path])
    expect(daemon, 400, "sealed against writing", {}, [good, memory(size=4 * v, seals=F_SEAL_WRITE)])
    expect(daemon, 400, "beyond the end of the descriptor's memory of %d bytes" % (4 * v - 1), {}, [good, memory(size=4 * v - 1)])
    expect(daemon, 400, "beyond the end", {}, [memory(size=15), out])
    sparse = memory(size=4096)
    os.ftruncate(sparse, 4 * v)
    expect(daemon, 400, "logits: only 4096 bytes of the memory are allocated", {}, [good, sparse], "logits")
    # Blocks that lie elsewhere in the file do not make up for a hole; nothing is made in its place.
    holed = memory(size=4096)
    os.ftruncate(holed, 16 * v)
    os.posix_fallocate(holed, 8 * v, 8 * v)
    blocks = os.fstat(holed).st_blocks
    expect(daemon, 400, "has holes", {}, [good, holed], "logits")
    if os.fstat(holed).st_blocks != blocks:
        fail("the daemon has made pages of an output: %d blocks, then %d" % (blocks, os.fstat(holed).st_blocks))
    empty = os.memfd_create("empty")
    os.ftruncate(empty, 1 << 20)
    status, answer = daemon.forward({"input_ids": tensor(0, [4], offset=65536), "logits": tensor(1, [1, v])}, [empty, out])
    if status != 200 or os.fstat(empty).st_blocks:
        fail("tokens in a hole: %s, %d blocks" % (answer, os.fstat(empty).st_blocks))
    expect(daemon, 400, "logits and input_ids overlap", {"logits.fd": 0}, [memory(size=4 * v)])
    expect(daemon, 400, "logits and input_ids overlap", {"logits.fd": 1}, [o := memory(size=4 * v), os.dup(o)])
    expect(daemon, 400, "token id -1 at position 2", {}, [memory(array.array("i", [1, 2, -1, 4]).tobytes()), out])
    expect(daemon, 400, "token id %d at position 0; the vocabulary has %d" % (v, v), {},
           [memory(array.array("i", [v, 2, 1, 4]).tobytes()), out])
    expect(daemon, 400, "token id 4294967297 at position 1", {"input_ids.dtype": "int64"},
           [memory(array.array("q", [1, 2**32 + 1, 1, 4]).tobytes()), out])
    expect(daemon, 400, "0 descriptors came", {}, [])
    expect(daemon, 400, "more than 16 descriptors", {}, [out] * 17)
    expect(daemon, 400, "more than 16 descriptors", {}, [out] * 250)
    # A sealed input is what it should be; one memfd may hold all.
    all_in_one = memory(array.array("i", [1, 2, 3, 4]).tobytes(), size=16 + 4 * v, seals=F_SEAL_SHRINK | F_SEAL_GROW)
    status, answer = daemon.forward({"input_ids": tensor(0, [4]), "logits": tensor(0, [1, v], offset=16)}, [all_in_one])
    if status != 200:
        fail("one memfd for all: %s" % answer)
    status, answer = daemon.forward({"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])}, [
        memory(array.array("i", [1, 2, 3, 4]).tobytes(), seals=F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), out])
    if status != 200:
        fail("a sealed input: %s" % answer)
    if not os.path.isdir("/dev/shm"):
        return
    with open("/dev/shm/txda-forward-%d" % os.getpid(), "w+b") as shm:
        os.unlink(shm.name)
        os.posix_fallocate(shm.fileno(), 0, 4 * v)
        status, answer = daemon.forward({"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])}, [good, shm.fileno()])
        if status != 200:
            fail("a file of a tmpfs: %s" % answer)


def check_connections(daemon):
    """Descriptors without a request, with another one, one after the other, cut off."""
    v = daemon.vocab
    body = {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])}
    data = request_bytes("POST", "/v1/forward", body)
    fds = [memory(array.array("i", [1, 2, 3, 4]).tobytes()), memory(size=4 * v)]

    # With other requests they are closed, and do not count for the next one.
    s = daemon.connect()
    stream = s.makefile("rb")
    send(s, "GET", "/health", None, fds)
    if read_answer(s, stream)[0] != 200:
        fail("descriptors with another request")
    s.sendall(data)
    status, answer = read_answer(s, stream)
    if "0 descriptors came" not in answer["error"]["message"]:
        fail("descriptors of the request before: %s" % answer)
    # Pipelined: each has its own, sent with its first bytes, its last ones, or one by one.
    s.sendall(request_bytes("GET", "/health", None))
    socket.send_fds(s, [data], fds)
    s.sendall(request_bytes("GET", "/health", None) + data[:20])
    socket.send_fds(s, [data[20:60]], fds[:1])
    socket.send_fds(s, [data[60:]], fds[1:])
    s.sendall(data)
    got = [read_answer(s, stream)[0] for _ in range(5)]
    if got != [200, 200, 200, 200, 400]:
        fail("pipelined: %s" % got)
    # With an urgent byte, which is one as any other.
    s.sendall(data[:30])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    try:
        s.sendmsg([data[30:31]], rights, socket.MSG_OOB)
    except OSError:  # the kernel has none
        s.sendmsg([data[30:31]], rights)
    s.sendall(data[31:])
    status, answer = read_answer(s, stream)
    if status != 200:
        fail("descriptors with an urgent byte: %d %s" % (status, answer))
    # Before a request, and more of them than one may have.
    stream.close()
    s.close()
    before = daemon.fds()
    held = []
    for text in (b"\r\n\r\n", b"POST /v1/forward HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", b"G", b"nonsense\r\n\r\n"):
        for n in (1, 16, 17, 200):
            s = daemon.connect()
            socket.send_fds(s, [text], fds[:1] * n)
            held.append(s)
    time.sleep(0.3)
    for s in held:
        s.close()
    # A client that leaves in the middle, with half a request, a whole one, and memory that shrinks.
    for i in range(60):
        s = daemon.connect()
        big = memory(size=4 * v * 64)
        many = memory(array.array("i", [1] * 64).tobytes())
        data = request_bytes("POST", "/v1/forward", {"rows": "all", "input_ids": tensor(0, [64]), "logits": tensor(1, [64, v])})
        socket.send_fds(s, [data[:len(data) - i % 3 * 20]], [many, big])
        if i % 4 == 1:
            time.sleep(0.01)
        if i % 2:
            os.ftruncate(big, 0)
            os.ftruncate(many, 0)
        s.close()
        os.close(big)
        os.close(many)
    for _ in range(200):
        if daemon.fds() <= before:
            break
        time.sleep(0.05)
    else:
        fail("%d descriptors are open, %d were before" % (daemon.fds(), before))
    for fd in fds:
        os.close(fd)


def check_shrinking(daemon):
    """Memory that goes away while it is written is an error, and no more."""
    v = daemon.vocab
    n = 512
    tokens, out = memory(array.array("i", [1 + i % 100 for i in range(n)]).tobytes()), memory(size=4 * v * n)
    result = []
    body = {"rows": "all", "input_ids": tensor(0, [n]), "logits": tensor(1, [n, v])}
    t = threading.Thread(target=lambda: result.append(daemon.forward(body, [tokens, out])))
    t.start()
    with mmap.mmap(out, 4 * v) as m:
        # The first row is there: it is being written.
        while t.is_alive() and not any(m[:64]):
            time.sleep(0.0005)
    os.ftruncate(out, 4 * v)
    t.join()
    status, answer = result[0]
    if status == 400 and "was removed while it was written" in answer["error"]["message"]:
        print("shrunk while it was written: %s" % answer["error"]["message"])
    elif status != 200:
        fail("shrinking memory: %d %s" % (status, answer))
    os.close(tokens)
    os.close(out)
    return status


def check_full(txdad, model, dir):
    """Who holds all that a user may waits with the next ones, and with nothing else."""
    # 64 descriptors of clients, of which a user may have 48.
    daemon = Daemon(txdad, model, [], dir, files=1024)
    v = daemon.ask("GET", "/v1/models/m")[1]["vocab_size"]
    fds = [memory(array.array("i", [1, 2, 3, 4]).tobytes()), memory(size=4 * v)]
    held = [daemon.connect() for _ in range(3)]
    for s in held:
        socket.send_fds(s, [b"POST "], fds * 8)
    while b"http_held_descriptors 48" not in daemon.text("/metrics"):
        time.sleep(0.01)
    waiting = daemon.connect()
    send(waiting, "POST", "/v1/forward", {"input_ids": tensor(0, [4]), "logits": tensor(1, [1, v])}, fds)
    for _ in range(20):
        if daemon.ask("GET", "/health")[0] != 200:
            fail("a request without descriptors while there is no room for them")
        time.sleep(0.01)
    waiting.setblocking(False)
    try:
        fail("answered without room for descriptors: %s" % waiting.recv(4096))
    except BlockingIOError:
        pass
    waiting.settimeout(60)
    # One that waits may go.
    gone = daemon.connect()
    send(gone, "POST", "/v1/forward", {}, fds)
    gone.close()
    for s in held:
        s.close()
    status, answer = read_answer(waiting)
    if status != 200:
        fail("when there was room again: %d %s" % (status, answer))
    while b"http_held_descriptors 0" not in daemon.text("/metrics"):
        time.sleep(0.01)
    for fd in fds:
        os.close(fd)
    daemon.stop()


def run(txdad, model, options, dir, reference):
    daemon = Daemon(txdad, model, options, dir)
    info = daemon.ask("GET", "/v1/models/m")[1]
    daemon.vocab, daemon.hidden = info["vocab_size"], info["hidden_size"]
    fake = reference is None
    if fake:
        reference = fake_rows(WORDS, range(len(WORDS)))
        call = Call(daemon, WORDS, "all", hidden=True).run(daemon)
        wanted = array.array("f", [(w >> k & 1) + 1 for w in WORDS for k in range(16)]).tobytes()
        if call.hidden != wanted or call.logits != reference:
            fail("hidden states")
    elif not daemon.hidden:
        expect(daemon, 400, "has no hidden states output", {"hidden_states": tensor(1, [1, 256])})
    else:
        check_hidden(daemon, reference, daemon.vocab)
    before = daemon.fds()
    check_rows(daemon, reference, daemon.vocab)
    check_company(daemon, reference, daemon.vocab)
    if fake:
        check_bodies(daemon)
        check_memory(daemon)
        check_connections(daemon)
        n = 512
        fds = [memory(size=4 * n), memory(size=4 * n * 4096)]
        status, answer = daemon.forward({"rows": "all", "timeout": 0.01, "input_ids": tensor(0, [n]), "logits": tensor(1, [n, 4096])}, fds)
        if status != 504 or answer["error"]["code"] != "timeout":
            fail("a timeout: %d %s" % (status, answer))
        for fd in fds:
            os.close(fd)
    # A model may be through before the memory goes; the fake engine is slow.
    for attempt in range(20 if fake else 2):
        if check_shrinking(daemon) == 400 and fake:
            break
    else:
        if fake:
            fail("the memory never went away in time")
    for _ in range(200):
        if daemon.fds() <= before:
            break
        time.sleep(0.05)
    else:
        fail("%d descriptors are open at the end, %d were before" % (daemon.fds(), before))
    # It still answers, and ends cleanly.
    Call(daemon, WORDS, "last").run(daemon)
    daemon.stop()


def main():
    txdad, model = sys.argv[1:3]
    reference = None
    with tempfile.TemporaryDirectory() as dir:
        if len(sys.argv) > 3:
            reference = subprocess.run([sys.argv[3], model, *map(str, WORDS)], stdout=subprocess.PIPE, check=True).stdout
        try:
            run(txdad, model, sys.argv[4:], dir, reference)
            if reference is None:
                check_full(txdad, model, dir)
        except BaseException:
            with open(os.path.join(dir, "txdad.log")) as log:
                print(log.read()[-4000:])
            raise
        if failures:
            with open(os.path.join(dir, "txdad.log")) as log:
                print(log.read()[-2000:])
    if failures:
        raise SystemExit("%d checks failed" % failures)
    print("all checks passed")


main()
