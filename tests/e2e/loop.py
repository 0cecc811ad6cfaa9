#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# loop.py TXDAD MODEL - what the event loop of the daemon (with the fake engine) does itself while clients
# ask for answers of many megabytes, forms that are hard to follow and models that are not loaded: it
# moves bytes. Asserted is how much JSON it writes, and that small requests are answered meanwhile; how
# long they take is only printed. Then: memory counts when it is held, not when it might be; all who
# waited for a model are answered when it is there, and what runs is answered when the daemon stops.
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

failures = 0
HEAVY = {"max_tokens": 400, "ignore_eos": True, "n": 64}


def check(ok, text):
    global failures
    if not ok:
        failures += 1
        print("FAIL:", text)


class Daemon:
    def __init__(self, txdad, model, *options, **env):
        self.dir = tempfile.TemporaryDirectory()
        self.socket = self.dir.name + "/s"
        self.log = open(self.dir.name + "/log", "w+b")
        more = [f"--model={name}={model}" for name in ("b", "c", "d")]
        self.process = subprocess.Popen([txdad, "--load=demand", "--model=m=" + model, *more, "--socket=" + self.socket, *options],
                                        stderr=self.log, env={**os.environ, **env})
        while self.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 1})[0] != 200:
            if self.process.poll() is not None:
                self.log.seek(0)
                sys.exit("the daemon ended: " + self.log.read().decode())
            time.sleep(0.05)

    def ask(self, method, path, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(self.socket)
            except OSError:
                return 0, b""
            s.sendall(b"%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(data)) + data)
            with s.makefile("rb") as f:
                status = int(f.readline().split()[1])
                while f.readline().strip():
                    pass
                return status, f.read()

    def metric(self, name):
        for line in self.ask("GET", "/metrics")[1].decode().splitlines():
            if line.startswith("txda_" + name + " "):
                return float(line.split()[1])
        sys.exit("there is no metric " + name)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(60) == 0, f"the daemon ended with {self.process.returncode}")


def test_loop(txdad, model):
    d = Daemon(txdad, model, FAKE_TOKEN_US="100", FAKE_HIDDEN="4096")
    sizes = []
    lock = threading.Lock()

    def ask(path, body, statuses=(200,)):
        status, data = d.ask("POST", path, body)
        with lock:
            sizes.append(len(data))
            check(status in statuses, f"{path}: {status} {data[:300]}")

    chat = {"messages": [{"role": "user", "content": "A tale."}], "logprobs": True, "top_logprobs": 20, **HEAVY}
    hard = {"prompt": "Once", "max_tokens": 50, "guided_regex": "((a|b|ab|ba)*(a|aa|aaa)*){8}(x|.*y.{40})z", "n": 4}
    calls = [("/v1/chat/completions", chat), ("/v1/chat/completions", {**chat, "stream": True}),
             ("/v1/completions", {"prompt": "Once", "logprobs": 5, **HEAVY}),
             ("/v1/embeddings", {"input": ["tale %d" % i for i in range(2048)]}),
             ("/v1/completions", hard, (200, 400))]
    calls += [("/v1/completions", {"model": name, "prompt": "Once", "max_tokens": 3}) for name in ("b", "c", "d")]
    before = d.metric("event_loop_json_bytes_total")
    crew = [threading.Thread(target=ask, args=call) for call in calls]
    for t in crew:
        t.start()
    times = []
    while any(t.is_alive() for t in crew):
        start = time.monotonic()
        status, data = d.ask("GET", "/version")
        times.append(time.monotonic() - start)
        check(status == 200 and b"version" in data, f"/version: {status} {data}")
        time.sleep(0.002)
    for t in crew:
        t.join()
    written = d.metric("event_loop_json_bytes_total") - before
    times.sort()
    print(f"answers of {sum(sizes) / 1e6:.0f} MB; /version {len(times)} times, median {times[len(times) // 2] * 1000:.2f} ms, "
          f"99.9% {times[int(len(times) * 0.999)] * 1000:.2f} ms; the loop wrote {written:.0f} bytes of JSON")
    check(sum(sizes) > 100e6, f"the answers are small: {sizes}")
    # Its own are those to /version, two times the metrics, and errors.
    check(written < 100 * len(times) + 50000, f"the event loop wrote {written:.0f} bytes of JSON")
    d.stop()


def test_memory(txdad, model):
    d = Daemon(txdad, model, "--max-memory=64M", FAKE_TOKEN_US="0")
    # It might take 400 MB, but does not: it ends where its text does.
    body = {"messages": [{"role": "user", "content": "A tale."}], "logprobs": True, "top_logprobs": 20, "n": 64}
    status, data = d.ask("POST", "/v1/chat/completions", {**body, "stop": ["a", "e", "t"]})
    check(status == 200 and len(json.loads(data)["choices"]) == 64, f"an answer that ends soon: {status} {data[:300]}")
    status, data = d.ask("POST", "/v1/chat/completions", {**body, "stream": True, "max_tokens": 100})
    check(status == 200 and data.endswith(b"[DONE]\n\n") and b'"error"' not in data, f"a stream: {status} {data[-300:]}")
    # What was asked for in so many words must be possible.
    status, data = d.ask("POST", "/v1/chat/completions", {**body, "max_tokens": 1900})
    check(status == 400 and b"may need" in data, f"an answer that cannot be: {status} {data[:300]}")
    # The prompt counts once more for each choice that repeats it.
    sizes = []
    for echo in (False, True):
        status, data = d.ask("POST", "/v1/completions", {"prompt": "Once upon a time", "echo": echo, "logprobs": 5, "n": 64, "max_tokens": 1900})
        found = re.search(rb"may need (\d+) bytes", data)
        check(status == 400 and found, f"an answer that cannot be, echo {echo}: {status} {data[:300]}")
        sizes.append(int(found[1]) if found else 0)
    check(sizes[1] >= sizes[0] + 64 * len("Once upon a time".split()), f"without and with the prompt: {sizes} bytes")
    # This one does take it, and is ended; who is beside it is not.
    status, data = d.ask("POST", "/v1/chat/completions", {**body, "ignore_eos": True})
    check(status == 429 and b"most of them" in data, f"an answer that grows: {status} {data[:300]}")
    status, data = d.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 5})
    check(status == 200, f"behind it: {status} {data[:300]}")
    end = time.monotonic() + 60
    while (held := d.metric("http_held_bytes") - d.metric("http_kept_bytes")) > 4096 and time.monotonic() < end:
        time.sleep(0.05)
    check(held <= 4096, f"{held:.0f} bytes are held by nobody")
    d.stop()


def test_parked(txdad, model):
    """More requests of one user wait for a model than the text workers let in at a time: all are answered."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    d = Daemon(txdad, model, FAKE_LOAD_MS="2000")
    data = json.dumps({"model": "b", "prompt": "Once", "max_tokens": 1}).encode()
    clients = []
    for i in range(900):
        # What is read at a time is limited, too: the second half comes when the first one has been read.
        while i == 450 and b'"reading"' in d.ask("GET", "/v1/requests")[1]:
            time.sleep(0.02)
        s = socket.socket(socket.AF_UNIX)
        s.connect(d.socket)
        s.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        clients.append(s)
    answers = {}
    for s in clients:
        with s, s.makefile("rb") as f:
            status = f.readline().split()[1]
            answers[status] = answers.get(status, 0) + 1
    check(answers == {b"200": 900}, f"answers to those who waited: {answers}")
    d.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_drain(txdad, model):
    """A request whose inputs do not all go into the engine at once is answered when the daemon is to stop meanwhile."""
    d = Daemon(txdad, model, FAKE_TOKEN_US="20000")
    answers = []
    ask = threading.Thread(target=lambda: answers.append(d.ask("POST", "/v1/embeddings", {"input": ["tale %d" % i for i in range(300)]})))
    ask.start()
    while not answers and b'"running":64' not in d.ask("GET", "/v1/requests")[1]:
        time.sleep(0.01)
    d.stop()
    ask.join()
    check(answers[0][0] == 200, f"what ran when the daemon was to stop: {answers[0][0]} {answers[0][1][:300]}")


def test_unload(txdad, model):
    """The same when a model with several replicas is unloaded meanwhile."""
    d = Daemon(txdad, model, "--data-parallel-size=2", FAKE_TOKEN_US="20000", FAKE_CHIPS="2")
    answers = []
    ask = threading.Thread(target=lambda: answers.append(d.ask("POST", "/v1/embeddings", {"model": "d", "input": ["tale %d" % i for i in range(300)]})))
    ask.start()
    while not answers and b'"running":64' not in d.ask("GET", "/v1/requests")[1]:
        time.sleep(0.01)
    check(d.ask("POST", "/v1/models/unload", {"model": "d"})[0] == 200, "the model is not unloaded")
    ask.join()
    check(answers[0][0] == 200, f"what ran when its model was unloaded: {answers[0][0]} {answers[0][1][:300]}")
    d.stop()


def test_queue(txdad, model):
    """More answers than may wait can never be: that is the request's mistake."""
    d = Daemon(txdad, model, "--max-queue=4")
    for body in ({"n": 5}, {"n": 2, "best_of": 5}):
        status, data = d.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2, **body})
        check(status == 400 and b"the limit of waiting requests is 4" in data, f"{body}: {status} {data}")
    check(d.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 2, "n": 4})[0] == 200, "as many as may wait")
    d.stop()


test_loop(*sys.argv[1:3])
test_memory(*sys.argv[1:3])
test_parked(*sys.argv[1:3])
test_drain(*sys.argv[1:3])
test_unload(*sys.argv[1:3])
test_queue(*sys.argv[1:3])
print(f"{failures} checks failed" if failures else "all checks passed")
sys.exit(failures != 0)
