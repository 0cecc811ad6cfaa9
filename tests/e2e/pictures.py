#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# pictures.py TXDAD FIXTURES DEMO [OPTION...] - models that see, through the daemon: the golden fixtures from their
# picture files, and pictures that are broken or hostile.
import base64
import http.client
import json
import math
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from bombs import bombs, gif, gif_frame, mutated, png, webp

# Greedy tokens are the reference's in float32; with bf16 inputs a near tie may fall the other way,
# so a run counts as far as the reference's margin is larger than that.
MARGIN = 0.06


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(self.path)


class Test:
    def __init__(self, path):
        self.path = path
        self.failures = 0

    def ask(self, method, route, body=None):
        c = Connection(self.path)
        c.request(method, route, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        return answer.status, data

    def check(self, ok, words):
        print(("ok: " if ok else "FAIL: ") + words)
        self.failures += not ok

    def chat(self, model, messages, **more):
        status, data = self.ask("POST", "/v1/chat/completions", {
            "model": model, "messages": messages, "temperature": 0, "ignore_eos": True, **more})
        return status, json.loads(data)

    def metric(self, name, labels=""):
        _, data = self.ask("GET", "/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in data.decode().splitlines() if line.startswith(name + "{" + labels))

    def wait_for(self, name, labels, value, at_least=False):
        """Whether a metric comes to that value."""
        for _ in range(1200):
            now = self.metric(name, labels)
            if now == value or (at_least and now > value):
                return True
            time.sleep(0.05)
        return False

    def stream(self, model, messages, **more):
        """A chat that goes on until the connection is closed: that, and its answer after the first event."""
        c = Connection(self.path)
        c.request("POST", "/v1/chat/completions", json.dumps({
            "model": model, "messages": messages, "temperature": 0, "ignore_eos": True, "stream": True, **more}))
        answer = c.getresponse()
        self.check(answer.status == 200 and answer.readline().startswith(b"data: "), f"a stream begins: {answer.status}")
        return c, answer


def read_golden(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] in ("I32", "F32"):
            a, b = t["data_offsets"]
            tensors[name] = struct.unpack("<%d%s" % ((b - a) // 4, "i" if t["dtype"] == "I32" else "f"), data[a:b])
    return header["__metadata__"], tensors


def uri(data, kind="image/png"):
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64," + base64.b64encode(data).decode()}}


def messages_of(directory, text):
    """The messages of a case as OpenAI has them."""
    messages = json.loads(text)
    for message in messages:
        for i, part in enumerate(message["content"]):
            if part["type"] == "image":
                with open(f"{directory}/{part['image']}", "rb") as f:
                    kind = "image/jpeg" if part["image"].endswith("jpg") else "image/png"
                    message["content"][i] = uri(f.read(), kind)
    return messages


def ids_of(test, model, messages):
    status, data = test.ask("POST", "/tokenize", {"model": model, "messages": messages, "add_generation_prompt": True})
    return json.loads(data)["tokens"] if status == 200 else data


def bits(answer):
    """What is the same to the last bit whenever it is asked."""
    return json.dumps(answer["choices"][0]["logprobs"]["content"]) if "choices" in answer else str(answer)


def log_probability(row, token):
    top = max(row)
    return row[token] - top - math.log(sum(math.exp(x - top) for x in row))


def check_case(test, fixtures, model, metadata, golden, i):
    """How many tokens of the continuation were compared."""
    messages = messages_of(f"{fixtures}/{model}", metadata[f"case{i}.messages"])
    ids = ids_of(test, model, messages)
    test.check(ids == list(golden[f"case{i}.ids"]), f"{model}: case {i}: the prompt: {str(ids)[:60]}")
    status, answer = test.chat(model, messages, max_tokens=24, logprobs=True)
    if status != 200:
        test.check(False, f"{model}: case {i}: {status} {answer}")
        return 0
    test.check(answer["usage"]["prompt_tokens"] == len(ids), f"{model}: case {i}: the prompt's tokens are counted")
    greedy, margin, last = golden[f"case{i}.greedy"], golden[f"case{i}.margin"], golden[f"case{i}.last"]
    entries = answer["choices"][0]["logprobs"]["content"]
    limit = 6 * 1.5e-2 * math.sqrt(sum(x * x for x in last) / len(last))
    off = abs(entries[0]["logprob"] - log_probability(last, greedy[0]))
    test.check(off <= limit, f"{model}: case {i}: the first log probability is off by {off:.1e}; {limit:.1e} is allowed")
    sure = next((k for k in range(len(greedy)) if margin[k] < MARGIN), len(greedy))
    for k in range(sure):
        _, data = test.ask("POST", "/detokenize", {"model": model, "tokens": [greedy[k]]})
        if entries[k]["token"] != json.loads(data)["prompt"]:
            test.check(False, f"{model}: case {i}: token {k} is {entries[k]['token']!r}, not that of {data}")
    return sure


def check_golden(test, fixtures, model):
    metadata, golden = read_golden(f"{fixtures}/{model}/golden.safetensors")
    compared = [check_case(test, fixtures, model, metadata, golden, i) for i in range(int(metadata["cases"]))]
    test.check(sum(compared) >= len(compared), f"{model}: {compared} greedy tokens of the cases were compared")


def as_user(uid, call, groups=()):
    """What a call gives that another user makes."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            with open(write, "w") as f:
                f.write(call())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as f:
        given = f.read()
    os.waitpid(child, 0)
    return given


def check_company(test, fixtures, model):
    """A request with an image gives the same bits alone, again (from the caches), and among others."""
    metadata, golden = read_golden(f"{fixtures}/{model}/golden.safetensors")
    parts = len(golden.get("case1.target_sizes", (0, 0))) // 2  # a picture and its slices
    cases = [messages_of(f"{fixtures}/{model}", metadata[f"case{i}.messages"]) for i in range(int(metadata["cases"]))]
    ask = dict(max_tokens=16, logprobs=True, top_logprobs=3)
    alone = [bits(test.chat(model, messages, **ask)[1]) for messages in cases]
    before = test.metric("txda_images_encoded_total")
    again = [bits(test.chat(model, messages, **ask)[1]) for messages in cases]
    test.check(again == alone, f"{model}: the same bits from the caches")
    test.check(test.metric("txda_images_encoded_total") == before, f"{model}: an image is encoded once")
    if os.getuid() == 0:
        encoded = test.metric("txda_images_encoded_total")
        other = as_user(65534, lambda: bits(test.chat(model, cases[1], **ask)[1]))
        test.check(other == alone[1] and test.metric("txda_images_encoded_total") == encoded + parts,
                   f"{model}: another user gets the same bits, and shares no embeddings")
    together = [None] * (2 * len(cases))

    def one(k):
        together[k] = bits(test.chat(model, cases[k % len(cases)], **ask)[1])
    threads = [threading.Thread(target=one, args=(k,)) for k in range(len(together))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    test.check(together == alone * 2, f"{model}: the same bits among others")
    _, several = test.chat(model, cases[1], n=3, **ask)
    test.check(all(json.dumps(c["logprobs"]["content"]) == alone[1] for c in several["choices"]),
               f"{model}: the same bits with n = 3")
    status, several = test.chat(model, cases[1], n=6, max_tokens=64, logprobs=True)
    test.check(status == 200 and len({json.dumps(c["logprobs"]["content"]) for c in several["choices"]}) == 1,
               f"{model}: the same bits for 6 that grow")
    alone.append(bits(several))
    # Another picture of the same size is another prompt.
    other = json.loads(json.dumps(cases[1]))
    other[0]["content"][0] = uri(png(64, 48, lambda x, y: (x * 4, y * 5, 90)))
    same = json.loads(json.dumps(other))
    same[0]["content"][0] = uri(png(64, 48, lambda x, y: (90, x * 4, y * 5)))
    first, second = bits(test.chat(model, other, **ask)[1]), bits(test.chat(model, same, **ask)[1])
    test.check(first != second, f"{model}: other pixels, other bits")
    return alone


def show(url, **more):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **more}},
                                         {"type": "text", "text": "What is it?"}]}]


def check_sources(test, model, directory):
    """Pictures as files below --image-dir, with the client's permissions, and as descriptors."""
    good, other = png(40, 30, lambda x, y: (x, y, x + y)), png(40, 30, lambda x, y: (y, x, 9))
    want = bits(test.chat(model, show(uri(good)["image_url"]["url"]), max_tokens=4, logprobs=True)[1])
    inside = directory + "/images"
    for name, data in (("a b.png", good), ("empty", b""), ("no.png", b"\x89PNG broken")):
        with open(f"{inside}/{name}", "wb") as f:
            f.write(data)
    os.makedirs(inside + "/deep/er")
    os.link(inside + "/a b.png", inside + "/deep/er/a.png")
    with open(directory + "/outside.png", "wb") as f:
        f.write(good)
    os.symlink(directory + "/outside.png", inside + "/out")
    os.symlink("a b.png", inside + "/near")
    os.symlink("..", inside + "/up")
    os.mkfifo(inside + "/fifo")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(inside + "/socket")

    def ask(url, **more):
        status, answer = test.chat(model, show(url, **more), max_tokens=4, logprobs=True)
        return status, bits(answer) if status == 200 else answer["error"]["message"]
    for url in (f"file://{inside}/a%20b.png", f"file://localhost{inside}/a%20b.png", f"file:{inside}/deep/./er//a.png",
                f"FILE://{inside}/a%20b.pn%67"):
        test.check(ask(url) == (200, want), f"{url}: the same bits as in a URI")
    for path, status, words in (
            (f"{inside}/none", 400, "No such file"), (f"{inside}/empty", 400, "empty"), (f"{inside}/no.png", 400, "picture 0"),
            (f"{inside}/fifo", 400, "regular"), (f"{inside}/socket", 400, "regular"), (f"{inside}/deep", 400, "regular"),
            (f"{inside}/out", 400, "symbolic"), (f"{inside}/near", 400, "symbolic"), (f"{inside}/up/outside.png", 400, "symbolic"),
            (f"{inside}/../outside.png", 403, "denied"), (f"{inside}/deep/%2e%2e/../../outside.png", 403, "denied"),
            (f"{directory}/outside.png", 403, "--image-dir"), ("/dev/zero", 403, "--image-dir"), ("/etc/passwd", 403, "--image-dir"),
            (f"{inside}x/a", 403, "--image-dir"), (inside, 403, "--image-dir"), (f"{inside}/a%00.png", 400, "file:///"),
            (f"{inside}/a%2", 400, "file:///"), (f"{inside}/" + "n" * 300, 400, "too long"), (f"{inside}/a%20b.png/x", 400, "directory")):
        got, message = ask("file://" + path)
        test.check(got == status and words in message, f"{path[-40:]}: {got} {message[:120]}")
    got, message = ask("file://elsewhere/a.png")
    test.check(got == 400 and "file:///" in message, f"another machine's file: {message[:80]}")
    if os.getuid() == 0:
        check_permissions(test, ask, inside, want, good)
    check_descriptors(test, model, inside, want, good, other)


def check_permissions(test, ask, inside, want, good):
    os.makedirs(inside + "/closed")
    os.makedirs(inside + "/group")
    for name, mode, uid, gid in (("root", 0o600, 0, 0), ("own", 0o400, 65534, 0), ("group/own", 0o640, 0, 65534),
                                 ("not", 0o077, 65534, 0), ("closed/open", 0o644, 0, 0)):
        with open(f"{inside}/{name}", "wb") as f:
            f.write(good)
        os.chmod(f"{inside}/{name}", mode)
        os.chown(f"{inside}/{name}", uid, gid)
    os.chmod(inside + "/closed", 0o700)
    os.chmod(inside + "/group", 0o710)
    os.chown(inside + "/group", 0, 65534)
    for name, status in (("a%20b.png", 200), ("own", 200), ("group/own", 200), ("root", 403), ("not", 403), ("closed/open", 403)):
        got = as_user(65534, lambda: json.dumps(ask(f"file://{inside}/{name}")))
        got, said = json.loads(got)
        test.check(got == status and (got != 200 or said == want), f"{name} for another user: {got} {said[:80]}")
    # Who has more groups than the daemon looks at is not taken for one who is in none of them.
    with open(f"{inside}/barred", "wb") as f:
        f.write(good)
    os.chmod(f"{inside}/barred", 0o604)
    os.chown(f"{inside}/barred", 0, 4242)
    for groups, status in (((), 200), ((4242,), 403), (tuple(range(4200, 4270)), 403)):
        got = json.loads(as_user(65534, lambda: json.dumps(ask(f"file://{inside}/barred")), groups))[0]
        test.check(got == status, f"a file that group 4242 may not read, for one with {len(groups)} groups: {got}")
    test.check(ask(f"file://{inside}/closed/open") == (200, want), "what the other user may not see is there")


def check_descriptors(test, model, inside, want, good, other):
    def memory(data):
        fd = os.memfd_create("picture")
        os.write(fd, data)
        return fd

    def send(fds, messages):
        body = json.dumps({"model": model, "messages": messages, "temperature": 0, "ignore_eos": True, "max_tokens": 4,
                           "logprobs": True}).encode()
        c = Connection(test.path)
        c.connect()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        socket.send_fds(c.sock, [head + b"Content-Length: %d\r\n\r\n" % len(body)], fds)
        c.sock.sendall(body)
        answer = http.client.HTTPResponse(c.sock, method="POST")
        answer.begin()
        data = json.loads(answer.read())
        c.close()
        return answer.status, bits(data) if answer.status == 200 else data["error"]["message"]
    fds = [memory(other), memory(good), memory(b""), os.open(inside + "/a b.png", os.O_RDONLY), *os.pipe(),
           os.open("/dev/zero", os.O_RDONLY), os.open(inside, os.O_PATH)]
    test.check(send(fds, show("fd:1")) == (200, want), "a descriptor: the same bits as in a URI")
    os.lseek(fds[1], 7, os.SEEK_SET)
    test.check(send(fds[1:2], show("fd:0")) == (200, want), "a descriptor that was read before")
    for k, words in ((2, "empty"), (3, "memfd"), (4, "memfd"), (5, "memfd"), (6, "memfd"), (7, "memfd"), (8, "8 descriptors"),
                     (99999999999999999999, "descriptors"), ("x", "fd:N"), ("-1", "fd:N"), ("", "fd:N")):
        status, message = send(fds, show(f"fd:{k}"))
        test.check(status == 400 and words in message, f"descriptor {k}: {status} {message[:100]}")
    status, message = send([], show("fd:0"))
    test.check(status == 400 and "0 descriptors" in message, f"no descriptor: {message[:100]}")
    status, message = send(fds[:1] * 17, show("fd:0"))
    test.check(status == 400 and "more than" in message, f"too many descriptors: {status} {message[:100]}")
    stop = threading.Event()

    def change():
        while not stop.is_set():
            os.ftruncate(fds[0], 10)
            os.pwrite(fds[0], good, 0)
    # Whatever is read is a picture or an error, and the daemon goes on.
    changer = threading.Thread(target=change)
    changer.start()
    got = [send(fds[:1], show("fd:0")) for _ in range(20)]
    stop.set()
    changer.join()
    test.check(all(status in (200, 400) for status, _ in got), f"one that changes: {sorted({status for status, _ in got})}")
    for fd in fds:
        os.close(fd)


def check_details(test, model):
    large = uri(png(1200, 800, lambda x, y: (x, y, x ^ y)))["image_url"]["url"]
    small = uri(png(40, 30, lambda x, y: (x, y, x + y)))["image_url"]["url"]

    def look(url, detail):
        return bits(test.chat(model, show(url, detail=detail), max_tokens=4, logprobs=True)[1])
    low, high, auto = (look(large, detail) for detail in ("low", "high", "auto"))
    test.check(low != high == auto, "a large picture is shrunk for low detail")
    test.check(look(large, "low") == low, "and found again as such")
    test.check(len({look(small, detail) for detail in ("low", "high", "auto")}) == 1, "a small one is the same in any detail")


def check_embeddings(test, fixtures, model):
    """Vectors of messages with pictures, as vLLM takes them."""
    def embed(messages, **more):
        status, data = test.ask("POST", "/v1/embeddings", {"model": "vl-embedding", "messages": messages, **more})
        return status, json.loads(data)
    metadata, golden = read_golden(f"{fixtures}/{model}/golden.safetensors")
    messages = messages_of(f"{fixtures}/{model}", metadata["case2.messages"])
    status, seen = embed(messages)
    test.check(status == 200 and len(seen["data"]) == 1, f"a vector of pictures: {status} {str(seen)[:100]}")
    n = len(ids_of(test, model, messages)) - len(ids_of(test, model, [{"role": "user", "content": "a"}])) + len(json.loads(
        test.ask("POST", "/tokenize", {"model": model, "messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False})[1])
        ["tokens"])
    test.check(seen["usage"] == {"prompt_tokens": n, "total_tokens": n}, f"its tokens are counted: {seen['usage']}, {n}")
    messages[0]["content"] = [part if part["type"] == "text" else uri(png(64, 48, lambda x, y: (x, 7, y))) for part in messages[0]["content"]]
    status, other = embed(messages)
    test.check(status == 200 and other["data"][0]["embedding"] != seen["data"][0]["embedding"], "other pictures, another vector")
    status, text = embed([{"role": "user", "content": "Once"}])
    _, rendered = test.ask("POST", "/tokenize", {"model": model, "messages": [{"role": "user", "content": "Once"}], "add_generation_prompt": False})
    _, same = test.ask("POST", "/v1/embeddings", {"model": "vl-embedding", "input": json.loads(rendered)["tokens"]})
    test.check(status == 200 and text["data"] == json.loads(same)["data"], "messages of text alone are their text")
    status, answer = embed(messages, input="a")
    test.check(status == 400 and "exclude" in answer["error"]["message"], f"input and messages: {status}")


def check_user_limits(test, model):
    picture = uri(png(40, 30, lambda x, y: (x, y, x + y)))
    status, answer = test.chat(model, [{"role": "user", "content": [picture] * 4}], max_tokens=1)
    test.check(status == 400 and "4 images" in str(answer) and "3 (--max-user-images)" in str(answer), f"a user's images: {answer}")
    status, answer = test.chat(model, [{"role": "user", "content": [uri(png(100, 80, lambda x, y: (x, y, 0)))]}], max_tokens=1)
    test.check(status == 400 and "8000 pixels" in str(answer) and "5000 (--max-user-pixels)" in str(answer), f"a user's pixels: {answer}")
    for _ in range(3):
        status, answer = test.chat(model, [{"role": "user", "content": [picture] * 3}], max_tokens=1)
        test.check(status == 200, f"as many as the user may have, one request after the other: {str(answer)[:80]}")
    check_limits_together(test, model, picture)


def check_limits_together(test, model, picture):
    """Beside a request that goes on: what others of the same user may have, and what is told of them."""
    uid = f'user="{os.getuid()}"'
    read = test.metric("txda_user_images_total", uid)
    for parts, pixels, words in (([picture] * 3, 3600, "4 images; the limit is 3 (--max-user-images)"),
                                 ([uri(png(70, 60))], 4200, "5400 pixels; the limit is 5000 (--max-user-pixels)")):
        stream, answer = test.stream(model, [{"role": "user", "content": parts}], max_tokens=4000)
        now = test.metric("txda_user_images", uid), test.metric("txda_user_image_pixels", uid)
        status, refused = test.chat(model, [{"role": "user", "content": [picture]}], max_tokens=1)
        test.check(status == 429 and words in str(refused), f"together too many: {status} {refused}")
        test.check(now == (len(parts), pixels), f"what the user has: {now}")
        if os.getuid() == 0:
            other = as_user(65534, lambda: str(test.chat(model, [{"role": "user", "content": [picture]}], max_tokens=1)[0]))
            test.check(other == "200", f"another user meanwhile: {other}")
        answer.close()
        stream.close()
        read += len(parts)
        test.check(test.wait_for("txda_user_images", uid, 0) and test.wait_for("txda_user_image_pixels", uid, 0),
                   "they are given back")
    # Earlier requests may be counted meanwhile: they are over after their answers.
    test.check(test.wait_for("txda_user_images_total", uid, read, at_least=True), "and counted")
    status, answer = test.chat(model, [{"role": "user", "content": [picture] * 3}], max_tokens=1)
    test.check(status == 200, f"and are there for the next: {str(answer)[:80]}")


def check_run(test, fixtures, model):
    """txda-run shows a picture as any client does."""
    def run(*words):
        return subprocess.run([os.environ["TXDA_RUN"], "--socket", test.path, "--model", model, "-n", "8", "--temperature", "0",
                               *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    picture = f"{fixtures}/{model}/images/a.png"
    with open(picture, "rb") as f:
        part = uri(f.read())
    question = {"type": "text", "text": "What is in the picture?"}
    _, answer = test.ask("POST", "/v1/chat/completions", {
        "model": model, "messages": [{"role": "user", "content": [part, part, question]}], "temperature": 0, "max_tokens": 8})
    said = json.loads(answer)["choices"][0]["message"]["content"]
    done = run("--image", picture, "--image", picture, question["text"])
    test.check(done.returncode == 0 and done.stdout.strip() == said.strip(), f"txda-run: {done.stdout!r}, not {said!r}: {done.stderr}")
    done = run("--image", picture + ".none", "Hello")
    test.check(done.returncode == 1 and ".none" in done.stderr, f"txda-run without a picture: {done.stderr}")
    for words in (["--raw", "--image", picture, "Hello"], ["--image", picture]):
        test.check(run(*words).returncode == 2, f"txda-run {words}")


def check_dropped(test, fixtures, model):
    """Paths of pictures in a chat at a terminal, as terminals paste what is dropped on them."""
    with tempfile.TemporaryDirectory() as home:
        names = ["plain.png", "two words.png", "it's.jpg", "no.png"]
        for name, source in zip(names, ("a.png", "c.png", "b.jpg")):
            shutil.copyfile(f"{fixtures}/{model}/images/{source}", f"{home}/{name}")
        with open(home + "/no.png", "w") as f:
            f.write("These are words, however it is called.")
        spaced = f"{home}/two words.png"
        lines = [(f"{home}/plain.png What is it?", ["plain.png"], "What is it?"),
                 (f"'{spaced}'  And this?", ["two words.png"], "And this?"),
                 (f'"{spaced}"', ["two words.png"], ""),
                 (spaced.replace(" ", "\\\\ ") + f" ./plain.png Both?", ["two words.png", "plain.png"], "Both?"),
                 (spaced + " ", ["two words.png"], ""),
                 (f"'{home}/it'\\\\''s.jpg' 'quoted' words", ["it's.jpg"], "'quoted' words"),
                 ("plain.png is a name.", [], "plain.png is a name.")]
        script = "see > \n"
        for line, shown, _ in lines:
            script += f"type {line}\\r\n" + "see Shown: \n" * len(shown) + "see FTL \nsee > \n"
        for other in (f"{home}/no.png", f"{home}/none.png", home):
            script += f"type {other} What?\\r\nsee Unknown command\nsee > \n"
        script += "type /save said.json\\r\nsee Saved 14 messages.\nsee > \ntype /load said.json\\r\nsee Loaded 14 messages.\nsee > \n"
        with open(home + "/bad.json", "w") as f:
            f.write('[{"role":"user","content":[{"type":"text","text":"A"},{"type":"image_url","image_url":{"url":7}}]}]')
        script += "type /load bad.json\\r\nsee message 1 has no text\nsee > \n"
        script += "type /exit\\r\nstatus 0\n"
        done = subprocess.run([os.environ["TERMINAL"], os.environ["TXDA_RUN"], "--socket", test.path, "--model", model, "-n", "2",
                               "--stats"], input=script, capture_output=True, text=True, cwd=home,
                              env={**os.environ, "HOME": home, "XDG_STATE_HOME": home, "TERM": "xterm"})
        test.check(done.returncode == 0, f"paths in a chat: {done.stdout}")
        if done.returncode:
            return
        with open(home + "/said.json") as f:
            said = [message["content"] for message in json.load(f) if message["role"] == "user"]
        for content, (line, shown, text) in zip(said, lines):
            want = []
            for name in shown:
                with open(f"{home}/{name}", "rb") as f:
                    want.append(uri(f.read(), "application/octet-stream"))
            want += [{"type": "text", "text": text}] if shown and text else []
            test.check(content == (want or text), f"{line}: {str(content)[-80:]}")


def check_hostile(test, model, alone, cases):
    good = png(40, 30, lambda x, y: (x, y, x + y))
    many = [uri(good)] * 17

    def content(*parts):
        return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]

    for what, parts, words in (
            ("a bomb", [uri(png(50000, 50000, rows=10))], "pixels"),
            ("a truncated picture", [uri(good[:len(good) // 2])], "picture 0"),
            ("no picture", [uri(b"\0" * 1000)], "picture 0"),
            ("an empty one", [uri(b"")], "empty"),
            ("the second of two broken", [uri(good), uri(good[:60])], "picture 1"),
            ("no base64", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA#A"}}], "not base64: byte 2 of 4 is 0x23"),
            ("lines of base64", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA\n"}}], "not base64: byte 4 of 5 is 0x0a"),
            ("base64 that is cut", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAAB"}}], "byte 4 of 5 is 0x42"),
            ("padding alone", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,=="}}], "empty"),
            ("another scheme", [{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}], "data:"),
            ("a file", [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "--image-dir"),
            ("a detail of another kind", [{"type": "image_url", "image_url": {"url": "data:,", "detail": "much"}}], "detail"),
            ("too many", many, "--max-images"),
            ("no URL", [{"type": "image_url", "image_url": {}}], "image_url"),
            ("a placeholder in the text", [uri(good), {"type": "text", "text": "<|image_pad|>"}], "places")):
        status, answer = test.chat(model, content(*parts), max_tokens=1)
        message = answer.get("error", {}).get("message", "")
        test.check(status == 400 and words in message, f"{what}: {status} {message[:120]}")
    # Decoding it takes longer, on any machine.
    status, answer = test.chat(model, content(uri(webp(8000, 8000))), max_tokens=1, timeout=0.05)
    test.check(status == 504 and "within 0.05 s" in str(answer), f"a picture that takes longer than the request may: {status} {answer}")
    status, data = test.ask("POST", "/v1/chat/completions", {"model": model, "messages": content(
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (9 << 20)}})})
    test.check(status == 413, f"a huge URI: {status} {data[:80]}")
    status, answer = test.chat("demo", content(uri(good)), max_tokens=1)
    test.check(status == 400 and "does not support images" in answer["error"]["message"], f"a model that does not see: {answer}")
    again = bits(test.chat(model, cases, max_tokens=16, logprobs=True, top_logprobs=3)[1])
    test.check(again == alone, "others are undisturbed")


def memory_of(pid):
    """Bytes that a process has in memory."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_bombs(test, fixtures, model, pid):
    """
    Pictures that are bombs or broken, each decoded in confinement: clear errors, or what is in them, while
    another client is answered as ever, and nothing of it stays. TXDA_MUTATIONS=10000: so many broken ones
    of each kind.
    """
    with open(f"{fixtures}/{model}/images/b.jpg", "rb") as f:
        jpeg = f.read()

    def plain(x, y):
        return x * 6, y * 8, x + y

    def ask(data):
        status, answer = test.chat(model, show(uri(data)["image_url"]["url"]), max_tokens=2, logprobs=True)
        return status, bits(answer) if status == 200 else answer["error"]["message"]

    def others():
        answers.add(bits(test.chat(model, [{"role": "user", "content": "Tell me more."}], max_tokens=24, logprobs=True)[1]))
    answers, done = set(), threading.Event()
    others()

    def go_on():
        while not done.is_set():
            others()
    another = threading.Thread(target=go_on)
    another.start()
    cases = list(bombs(jpeg, plain))
    for again in (False, True):
        for what, data, want in cases:
            status, said = ask(data)
            if isinstance(want, bytes):
                test.check((status, said) == ask(want) and status == 200, f"{what}: {status} {said[:100]}")
            else:
                test.check(status == 400 and want in said and "picture 0" in said, f"{what}: {status} {said[:200]}")
        before = before if again else memory_of(pid)
    many = int(os.environ.get("TXDA_MUTATIONS", "12"))
    for kind, data in (("JPEG", jpeg), ("PNG", png(40, 30, plain)), ("GIF", gif(40, 30, gif_frame(40, 30))), ("WebP", webp(40, 30))):
        got = [ask(mutated(data, seed)) for seed in range(many)]
        wrong = [g for g in got if g[0] != 200 and (g[0] != 400 or "picture 0" not in g[1])]
        test.check(not wrong, f"{many} broken ones, {kind}: {sum(g[0] == 200 for g in got)} are pictures; {wrong[:1]}")
    done.set()
    another.join()
    grown = memory_of(pid) - before
    margin = int(os.environ.get("RSS_MARGIN_KIB", "16384")) << 10
    test.check(grown <= margin, f"the daemon has {grown} bytes more in memory; {margin} may be noise")
    test.check(len(answers) == 1, f"another client's answers meanwhile: {len(answers)} kinds")


class Daemon:
    """A daemon with the models, for a while."""
    def __init__(self, txdad, fixtures, models, options):
        self.directory = tempfile.TemporaryDirectory()
        self.test = Test(self.directory.name + "/socket")
        os.chmod(self.directory.name, 0o755)
        command = [txdad, "--socket", self.test.path, "--socket-mode", "0666", "--cache-dir", os.environ.get("CACHE_DIRECTORY", self.directory.name)]
        command += options  # before the models: for all of them
        for name in models:
            command += ["--model", f"{name}={fixtures}/{name}" if "/" not in name else f"{os.path.basename(name)}={name}"]
        self.log = open(self.directory.name + "/log", "w+")
        self.process = subprocess.Popen(command, stderr=self.log, env={**os.environ, "TXDA_BACKEND": "cmodel"})

    def __enter__(self):
        for _ in range(1200):
            try:
                if self.test.ask("GET", "/health")[0] == 200:
                    return self.test
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.test.check(False, "the daemon did not become healthy")
        return self.test

    def __exit__(self, *_):
        self.process.terminate()
        self.test.check(self.process.wait() == 0, "the daemon ends well")
        if self.test.failures:
            self.log.seek(0)
            print(self.log.read()[-4000:])
        self.log.close()
        self.directory.cleanup()


def more_of_one_model(txdad, fixtures, model):
    """Where pictures come from, in what detail, for vectors, how many."""
    with tempfile.TemporaryDirectory() as directory:
        embedding = directory + "/vl-embedding"
        shutil.copytree(f"{fixtures}/{model}", embedding)
        # As newer versions write it.
        with open(embedding + "/preprocessor_config.json") as f:
            processor = json.load(f)
        os.remove(embedding + "/preprocessor_config.json")
        with open(embedding + "/processor_config.json", "w") as f:
            json.dump({"image_processor": processor}, f)
        os.mkdir(embedding + "/1_Pooling")
        with open(embedding + "/modules.json", "w") as f:
            json.dump([{"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""},
                       {"idx": 1, "type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}], f)
        with open(embedding + "/1_Pooling/config.json", "w") as f:
            json.dump({"pooling_mode_lasttoken": True}, f)
        os.mkdir(directory + "/images")
        os.chmod(directory, 0o755)
        daemon = Daemon(txdad, fixtures, [model, embedding], ["--image-dir", directory + "/images", "--kv-cache-memory", "2M"])
        with daemon as test:
            check_sources(test, model, directory)
            check_details(test, model)
            check_embeddings(test, fixtures, model)
            check_bombs(test, fixtures, model, daemon.process.pid)
        failures = test.failures
    with Daemon(txdad, fixtures, [model], ["--max-user-images", "3", "--max-user-pixels", "5000"]) as test:
        check_user_limits(test, model)
    return failures + test.failures


def main():
    txdad, fixtures, demo, *options = sys.argv[1:]
    models = ["qwen2_vl", "qwen25_vl", "qwen3_vl", "glm4v", "llava_next", "minicpmv46", "qwen3_vl_moe", "qwen35"]
    alone = {}
    with Daemon(txdad, fixtures, models + [demo], options) as test:
        for name in models:
            check_golden(test, fixtures, name)
        check_run(test, fixtures, "qwen2_vl")
        check_dropped(test, fixtures, "qwen2_vl")
        for name in ("qwen2_vl", "qwen3_vl", "minicpmv46"):
            alone[name] = check_company(test, fixtures, name)
        metadata, _ = read_golden(f"{fixtures}/qwen2_vl/golden.safetensors")
        check_hostile(test, "qwen2_vl", alone["qwen2_vl"][1], messages_of(f"{fixtures}/qwen2_vl", metadata["case1.messages"]))
    failures = test.failures
    if not options:
        failures += more_of_one_model(txdad, fixtures, "qwen2_vl")
    # Prompts in pieces that end within images, and blocks for a few sequences only: the same bits.
    small = ["--max-num-batched-tokens", "7", "--max-num-seqs", "7", "--max-model-len", "128", "--kv-cache-memory"]
    for name, memory in (("qwen2_vl", "48K"), ("qwen3_vl", "96K")):
        with Daemon(txdad, fixtures, [name], options + small + [memory]) as test:
            pieces = check_company(test, fixtures, name)
            differ = [i for i, (a, b) in enumerate(zip(pieces, alone[name])) if a != b]
            test.check(not differ, f"{name}: the same bits in pieces; other ones: {differ}")
            test.check(test.metric("txda_num_preemptions_total") > 0, f"{name}: sequences were preempted")
        failures += test.failures
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(1 if failures else 0)


main()
