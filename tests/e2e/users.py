#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# users.py TXDAD MODEL - users who share the daemon (with the fake engine): what one may not know of
# another, and what one cannot take from another. Needs root, to be several users.
import array
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

failures = 0
A, B, C = 61001, 61002, 61003  # users; A attacks where somebody does


def check(ok, text):
    global failures
    if not ok:
        failures += 1
        print("FAIL:", text)


def until(condition, text, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            check(False, text)
            return False
        time.sleep(0.02)
    return True


class Daemon:
    def __init__(self, txdad, *options, **env):
        self.dir = tempfile.TemporaryDirectory()
        os.chmod(self.dir.name, 0o711)
        self.socket = self.dir.name + "/s"
        self.log = open(self.dir.name + "/log", "w+b")
        self.process = subprocess.Popen([txdad, "--socket=" + self.socket, "--socket-mode=0666", *options],
                                        stderr=self.log, env={**os.environ, **env})
        while not self.is_there():
            if self.process.poll() is not None:
                sys.exit("the daemon ended: " + self.said())
            time.sleep(0.02)

    def is_there(self):
        try:
            return self.ask("GET", "/version")[0] == 200
        except OSError:
            return False

    def said(self):
        self.log.seek(0)
        return self.log.read().decode()

    # Connections of a user: made by a process that is that user, as the kernel remembers who connects.
    def connect(self, uid=0, n=1):
        ours, theirs = socket.socketpair()
        child = os.fork()
        if not child:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                for _ in range(n):
                    with socket.socket(socket.AF_UNIX) as s:
                        s.connect(self.socket)
                        socket.send_fds(theirs, [b"x"], [s.fileno()])
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        found = []
        while len(found) < n:
            data, fds, _, _ = socket.recv_fds(ours, 1, 1)
            if not data:
                break
            found += [socket.socket(fileno=fd) for fd in fds]
        ours.close()
        os.waitpid(child, 0)
        if len(found) < n:
            raise OSError(f"user {uid} has {len(found)} of {n} connections")
        for s in found:
            s.settimeout(120)
        return found

    def ask(self, method, path, body=None, uid=0):
        s = self.connect(uid)[0]
        send(s, method, path, body)
        status, _, data = read(s)
        return status, data

    def post(self, path, body, uid=0):
        return self.ask("POST", path, body, uid)

    def metric(self, name):
        for line in self.ask("GET", "/metrics")[1].decode().splitlines():
            if line.startswith("txda_" + name + " "):
                return float(line.split()[1])
        sys.exit("there is no metric " + name)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(60) == 0, f"the daemon ended with {self.process.returncode}: {self.said()[-2000:]}")
        self.log.close()


def send(s, method, path, body=None):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    s.sendall(b"%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(data)) + data)


# Status, header lines and body of an answer; status 0: the daemon has closed without one.
def read(s):
    with s, s.makefile("rb") as f:
        try:
            first = f.readline().split()
            head = []
            while (line := f.readline().strip()):
                head.append(line.decode())
            return (int(first[1]) if first else 0), head, f.read()
        except ConnectionResetError:
            return 0, [], b""


# ---- what one may not know -------------------------------------------------------------------------


def test_hidden_models(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=open=" + model, "--model=secret=" + model, f"--model-user={B}",
               "--model=broken=/nonexistent", f"--model-user={B}")
    check(d.ask("GET", "/health", uid=B)[0] == 503, "a model that failed is healthy")
    status, data = d.ask("GET", "/health", uid=A)
    check(status == 200 and json.loads(data)["models"].keys() == {"open"}, f"/health tells {status} {data}")
    check([m["id"] for m in json.loads(d.ask("GET", "/v1/models", uid=A)[1])["data"]] == ["open"], "/v1/models lists others'")
    check(len(json.loads(d.ask("GET", "/v1/models", uid=B)[1])["data"]) == 3, "/v1/models lists too little")
    check(d.post("/v1/completions", {"model": "secret", "prompt": "Once", "max_tokens": 2}, B)[0] == 200, "its user may not use it")
    chat = {"messages": [{"role": "user", "content": "A tale."}], "max_tokens": 2}
    calls = [("GET", "/v1/models/{}", None), ("POST", "/v1/chat/completions", chat), ("POST", "/v1/completions", {"prompt": "Once"}),
             ("POST", "/v1/embeddings", {"input": "Once"}), ("POST", "/tokenize", {"prompt": "Once"}),
             ("POST", "/detokenize", {"tokens": [1]}), ("POST", "/v1/models/load", {}), ("POST", "/v1/models/plan", {}),
             ("POST", "/v1/forward", {"input_ids": {"fd": 0, "shape": [1], "dtype": "int32"},
                                      "logits": {"fd": 0, "shape": [1, 8], "dtype": "float32"}})]
    for method, path, body in calls:
        answers = []
        for name in ("secret", "broken", "nosuch"):
            status, data = d.ask(method, path.format(name), body if body is None else {**body, "model": name}, A)
            answers.append((status, data.decode().replace(name, "NAME")))
        check(len(set(answers)) == 1 and "secret" not in answers[2][1], f"{path} tells models from none: {answers}")
    status, data = d.ask("GET", "/metrics", uid=A)
    check(status == 200 and b"secret" not in data and b"broken" not in data, f"/metrics tells of others' models: {data}")
    check(b'model_name="secret"' in d.ask("GET", "/metrics")[1], "/metrics tells root too little")
    # The first model is that of who may use it.
    d.stop()
    d = Daemon(txdad, "--load=demand", "--model=secret=" + model, f"--model-user={B}", "--model=open=" + model)
    status, data = d.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}, A)
    check(status == 200 and json.loads(data)["model"] == "open", f"without a name: {status} {data}")
    d.stop()


def test_ids(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model)
    ids = [json.loads(d.post("/v1/completions", {"prompt": "Once", "max_tokens": 1})[1])["id"] for _ in range(8)]
    numbers = [int(i.split("-")[1], 16) for i in ids]
    gaps = {abs(a - b) for a, b in zip(numbers, numbers[1:])}
    check(len(gaps) == 7 and min(gaps) > 1 << 32, f"ids that count up: {ids}")
    d.stop()


TESTS = [test_hidden_models, test_ids]


def main():
    if os.getuid():
        print("several users take root")
        sys.exit(77)
    wanted = sys.argv[3:]
    for test in TESTS:
        if not wanted or test.__name__ in wanted:
            test(sys.argv[1], sys.argv[2])
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


main()
