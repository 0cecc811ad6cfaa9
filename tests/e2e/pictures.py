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
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

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

    def metric(self, name):
        _, data = self.ask("GET", "/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in data.decode().splitlines() if line.startswith(name + "{"))


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


def as_user(uid, call):
    """What a call gives that another user makes."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
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
    metadata, _ = read_golden(f"{fixtures}/{model}/golden.safetensors")
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
        test.check(other == alone[1] and test.metric("txda_images_encoded_total") == encoded + 1,
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


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixel=None, rows=None):
    """A PNG of those sizes; rows: so many of them only."""
    raw = zlib.compressobj(1)
    data = b""
    for y in range(height if rows is None else rows):
        line = b"".join(bytes(v & 255 for v in pixel(x, y)) for x in range(width)) if pixel else bytes(3 * width)
        data += raw.compress(b"\0" + line)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", data + raw.flush()) + chunk(b"IEND", b""))


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
            ("no base64", [{"type": "image_url", "image_url": {"url": "data:image/png;base64,####"}}], "base64"),
            ("another scheme", [{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}], "data:"),
            ("a file", [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}], "data:"),
            ("a detail of another kind", [{"type": "image_url", "image_url": {"url": "data:,", "detail": "much"}}], "detail"),
            ("too many", many, "--max-images"),
            ("no URL", [{"type": "image_url", "image_url": {}}], "image_url"),
            ("a placeholder in the text", [uri(good), {"type": "text", "text": "<|image_pad|>"}], "places")):
        status, answer = test.chat(model, content(*parts), max_tokens=1)
        message = answer.get("error", {}).get("message", "")
        test.check(status == 400 and words in message, f"{what}: {status} {message[:120]}")
    status, data = test.ask("POST", "/v1/chat/completions", {"model": model, "messages": content(
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (9 << 20)}})})
    test.check(status == 413, f"a huge URI: {status} {data[:80]}")
    status, answer = test.chat("demo", content(uri(good)), max_tokens=1)
    test.check(status == 400 and "takes no images" in answer["error"]["message"], f"a model that does not see: {answer}")
    status, answer = test.chat("minicpmv46", content(uri(good)), max_tokens=1)
    test.check(status == 400 and "slices" in answer["error"]["message"], f"a tower of slices: {answer}")
    for detail in ("low", "high", "auto"):
        part = uri(good)
        part["image_url"]["detail"] = detail
        status, answer = test.chat(model, content(part), max_tokens=1)
        test.check(status == 200, f"detail {detail}: {status}")
    again = bits(test.chat(model, cases, max_tokens=16, logprobs=True, top_logprobs=3)[1])
    test.check(again == alone, "others are undisturbed")


class Daemon:
    """A daemon with the models, for a while."""
    def __init__(self, txdad, fixtures, models, options):
        self.directory = tempfile.TemporaryDirectory()
        self.test = Test(self.directory.name + "/socket")
        os.chmod(self.directory.name, 0o755)
        command = [txdad, "--socket", self.test.path, "--socket-mode", "0666", "--cache-dir", os.environ.get("CACHE_DIRECTORY", self.directory.name)]
        command += options  # before the models: for all of them
        for name in models:
            command += ["--model", f"{name}={fixtures}/{name}" if "/" not in name else f"demo={name}"]
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


def main():
    txdad, fixtures, demo, *options = sys.argv[1:]
    models = ["qwen2_vl", "qwen25_vl", "qwen3_vl", "glm4v", "llava_next"]
    if not options: # of those that span chips there may be 16 at a time, and each has two programs
        models += ["qwen3_vl_moe", "qwen35"]
    alone = {}
    with Daemon(txdad, fixtures, models + ["minicpmv46", demo], options) as test:
        for name in models:
            check_golden(test, fixtures, name)
        check_run(test, fixtures, "qwen2_vl")
        for name in ("qwen2_vl", "qwen3_vl"):
            alone[name] = check_company(test, fixtures, name)
        metadata, _ = read_golden(f"{fixtures}/qwen2_vl/golden.safetensors")
        check_hostile(test, "qwen2_vl", alone["qwen2_vl"][1], messages_of(f"{fixtures}/qwen2_vl", metadata["case1.messages"]))
    failures = test.failures
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
