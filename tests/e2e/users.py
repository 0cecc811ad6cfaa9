#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# users.py TXDAD MODEL - users who share the daemon (with the fake engine): what one may not know of
# another, and what one cannot take from another. Needs root, to be several users.
import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

failures = 0
# Seconds for one test, and for processes that it starts: none waits for ever for what does not come.
PATIENCE = 600 if "RSS_MARGIN_KIB" in os.environ else 240
A, B, C = 61001, 61002, 61003  # users; A attacks where somebody does


def check(ok, text):
    global failures
    if not ok:
        failures += 1
        print("FAIL:", text)


def too_long(*_):
    sys.exit(f"FAIL: a test takes more than {PATIENCE} s")


# A process that a test has forked ends by itself, too.
def bound_child():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE // 2)


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
        atexit.register(self.process.kill)
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
            bound_child()
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
        self.text = self.said()
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


def test_metrics(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model, f"--monitor-user={C}")
    check(d.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 7}, B)[0] == 200, "B is not answered")
    own = d.ask("GET", "/metrics", uid=B)[1].decode()
    others = d.ask("GET", "/metrics", uid=A)[1].decode()
    check(f'txda_user_generation_tokens_total{{user="{B}"}} 7' in own, f"B does not see its tokens: {own}")
    check("model_name" not in own + others and "http_" not in others, f"sums of all users: {others}")
    check(f'user="{A}"' in others and set(re.findall(r'user="(\d+)"', others)) == {str(A)}, f"others' metrics: {others}")
    for uid in (0, C):
        text = d.ask("GET", "/metrics", uid=uid)[1].decode()
        check('model_name="m"' in text and f'user="{B}"' in text and f'user="{A}"' in text, f"user {uid} sees not all: {text}")
    check(d.post("/v1/models/unload", {"model": "m"}, C)[0] == 403, "who watches may unload")
    d.stop()


def descendants(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE).stdout.split()
    return [p for child in map(int, found) for p in [child, *descendants(child)]]


# A grammar that is there already is quick: it must not be so for who did not ask for it before.
def test_grammars(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model)
    body = {"prompt": [5, 6, 7], "max_tokens": 2, "guided_regex": "[a-z ]+B's secret[a-z ]*", "timeout": 2}
    check(d.post("/v1/completions", {**body, "timeout": 60}, B)[0] == 200, "B's grammar is refused")
    # From here on no new ones can be made.
    stopped = descendants(d.process.pid)
    check(stopped, "the model has no text process")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    status, data = d.post("/v1/completions", {**body, "timeout": 60}, B)
    check(status == 200, f"B's own grammar is not kept: {status} {data}")
    status, data = d.post("/v1/completions", body, A)
    check(status != 200, f"B's grammar is used for A: {status} {data}")
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # ended for the time that A's request took
    d.stop()


# What is refused after the text process has made it is not used, and not kept.
def test_refused_grammars(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model)
    n = 3000
    # A text of it may begin in too many rules at once.
    rules = ["root ::= " + " | ".join(f"r{i}" for i in range(n)), *(f'r{i} ::= "a" r{i + 1}' for i in range(n)), f'r{n} ::= "b"']
    for _ in range(3):
        status, data = d.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2, "guided_grammar": "\n".join(rules)}, A)
        check(status == 400 and b"it is too complex" in data, f"a grammar of {n} beginnings: {status} {data[:300]}")
    check(d.metric("http_kept_bytes") == 0, "a refused grammar is kept")
    d.stop()


# ---- what one cannot take ---------------------------------------------------------------------------


def half_sent(s, size):
    try:
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % size)
    except OSError:
        pass  # refused


def test_connections(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model, "--max-connections=64")
    for s in (held := d.connect(A, 64)):
        half_sent(s, 1000)
    until(lambda: d.metric(f'user_connections{{user="{A}"}}') == 45, "A has %g connections of 60, not 45" %
          d.metric(f'user_connections{{user="{A}"}}'))
    for uid in (B, C, 0):
        check(d.ask("GET", "/version", uid=uid)[0] == 200, f"no connection for user {uid}")
    # What is kept for administrators is there when all users have theirs.
    more = [s for uid in (B, C, 61004, 61005, 61006) for s in d.connect(uid, 20)]
    for s in more:
        half_sent(s, 1000)
    statuses = [read(s)[0] for s in d.connect(0, 1) if not send(s, "GET", "/version")]
    check(statuses == [200], f"root beside users who have all connections: {statuses}")
    # One that idles makes room for another one of its own user.
    for s in held + more:
        s.close()
    until(lambda: d.metric("http_connections") == 1, "connections stay")
    idle = d.connect(A, 46)
    s = d.connect(A)[0]
    send(s, "GET", "/version")
    check(read(s)[0] == 200, "an idle connection makes no room")
    d.stop()


def rss(d, name="VmRSS"):
    with open(f"/proc/{d.process.pid}/status") as f:
        return int(re.search(name + r":\s*(\d+)", f.read())[1]) * 1024


def test_memory(txdad, model):
    limit = 64 << 20
    d = Daemon(txdad, "--load=demand", "--model=m=" + model, "--max-memory=64M")
    d.post("/tokenize", {"prompt": "Once"})
    base = rss(d)
    # Bodies that are announced and half sent, to the end of A's share.
    held = d.connect(A, 40)
    for s in held:
        half_sent(s, 8 << 20)
        s.settimeout(1)
        try:
            s.sendall(b"x" * (4 << 20))
        except OSError:
            pass
    text = {"prompt": "Once upon a time " * 4000}
    check(d.metric("http_held_bytes") > limit // 2, "A holds little")
    status, data = d.post("/tokenize", text, B)
    check(status == 200, f"B beside bodies of A: {status} {data[:300]}")
    for s in held:
        s.close()
    # Tokens and answers count, too.
    held = d.connect(A, 12)
    for i, s in enumerate(held):
        send(s, "POST", "/tokenize", {"prompt": "a b c d " * (500000 if i % 2 else 50000), "return_token_strs": True})
    statuses = []
    for s in held:
        statuses.append(d.post("/tokenize", text, B)[0])
        statuses.append(read(s)[0])
    check(set(statuses[::2]) == {200}, f"B beside tokens of A: {statuses[::2]}")
    check(set(statuses[1::2]) <= {200, 400, 429} and 200 in statuses[1::2], f"A: {statuses[1::2]}")
    peak = rss(d, "VmHWM") - base
    margin = int(os.environ.get("RSS_MARGIN_KIB", "0")) * 1024
    print(f"a peak of {peak >> 20} MiB above what is there without requests; the limit is {limit >> 20} MiB")
    check(peak < limit * 5 // 4 + margin, f"{peak} bytes were held, the limit is {limit}")
    until(lambda: d.metric("http_held_bytes") < 65536, "something is held for nobody")
    d.stop()


# Grammars kept for later requests count for whoever asked for them, and give way to requests.
def test_kept(txdad, model):
    limit = 16 << 20
    d = Daemon(txdad, "--load=demand", "--model=m=" + model, "--max-memory=16M", "--max-body=32M")
    kept = lambda: d.metric("http_kept_bytes")
    for i in range(10):
        words = [f"{i}-{k * 2654435761 % 4294967296:08x}" for k in range(3000)]
        status, data = d.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 1, "guided_choice": words}, A)
        check(status == 200, f"grammar {i}: {status} {data[:300]}")
    until(lambda: d.metric("http_held_bytes") - kept() < 65536, "requests hold memory that have ended")
    print(f"{kept():.0f} bytes are kept")
    check(1 << 20 < kept() <= limit // 4, f"{kept()} bytes are kept; the limit is {limit // 4}")
    check(f'txda_user_held_bytes{{user="{A}"}} 0' not in d.ask("GET", "/metrics")[1].decode(), "the user does not hold what is kept")
    # More than fits beside it.
    s = d.connect(B)[0]
    s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (limit // 4 * 3 - 65536))
    with s:
        answer = s.recv(4096)
    check(answer.startswith(b"HTTP/1.1 100"), f"what is kept costs B its share: {answer}")
    check(kept() < 1 << 20, f"{kept()} bytes are still kept")
    # Grammars that do not fit beside what A holds itself are refused.
    held = d.connect(A)[0]
    half_sent(held, limit // 4 * 3 - (1 << 20))
    held.sendall(b" " * (limit // 4 * 3 - (2 << 20)))
    until(lambda: d.metric("http_held_bytes") > limit // 2, "A's body is not held")
    words = [f"{k * 2654435761 % 4294967296:08x}{k:08x}" for k in range(12000)]
    status, data = d.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 1, "guided_choice": words}, A)
    check(status == 429, f"a grammar beyond A's share: {status} {data[:300]}")
    held.close()
    until(lambda: d.metric("http_held_bytes") - kept() < 65536, "something is held for nobody")
    d.stop()


def test_log(txdad, model):
    d = Daemon(txdad, "--load=demand", "--model=m=" + model)
    n = 3000
    start = time.monotonic()
    s = d.connect(A)[0]
    with s, s.makefile("rb") as f:
        for _ in range(n // 100):
            s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            for _ in range(100):
                while f.readline().strip():
                    pass
                f.read(len(b'{"version":"0.1.0"}'))
    seconds = time.monotonic() - start
    d.ask("GET", "/health", uid=B)
    d.stop()
    log = d.text
    lines = len(re.findall(rf"uid {A} pid \d+ \"GET /version", log))
    more = sum(map(int, re.findall(rf"uid {A}: (\d+) more requests", log)))
    check(f"uid {B} pid" in log, "the other user is not in the log")
    check(lines + more == n, f"{lines} lines and {more} more are not {n} requests")
    check(lines <= 200 * (seconds + 2), f"{lines} lines in {seconds:.1f} s")


def test_loads(txdad, model):
    with tempfile.TemporaryDirectory() as tmp:
        models = []
        for name in "ab":
            os.mkdir(f"{tmp}/{name}")
            for file in os.listdir(model):
                os.symlink(f"{os.path.abspath(model)}/{file}", f"{tmp}/{name}/{file}")
            models.append(f"--model={name}={tmp}/{name}")
        d = Daemon(txdad, "--load=demand", *models, FAKE_CHIP_MB="256", FAKE_WEIGHT_MB="150", FAKE_LOAD_MS="20")
        ask = {"prompt": "Once", "max_tokens": 1}
        # One who has models loaded in turns has to wait soon; another's request loads nevertheless.
        for i in range(100):
            status, data = d.post("/v1/completions", {**ask, "model": "ab"[i % 2]}, A)
            if status != 200:
                break
        check(status == 429 and b"have loaded" in data and i >= 8, f"after {i} loads: {status} {data}")
        check(d.metric(f'user_model_loads_total{{user="{A}"}}') == i, "loads are counted otherwise")
        check(d.post("/v1/completions", {**ask, "model": "ab"[i % 2]}, B)[0] == 200, "B's load is refused")
        check(d.post("/v1/completions", {**ask, "model": "ab"[i % 2]}, A)[0] == 200, "what is loaded is for A, too")
        d.stop()


# In a directory like /tmp somebody else may listen where the daemon is expected.
def test_impostor(txdad, model):
    with tempfile.TemporaryDirectory() as tmp:
        os.chmod(tmp, 0o1777)
        programs = []
        for name in ("TXDA_RUN", "TXDACTL", "TXDA_BENCH"):
            programs.append(shutil.copy(os.environ[name], tmp))
            os.chmod(programs[-1], 0o755)
        for uid, trusted in ((A, False), (B, True), (0, True)):
            path = f"{tmp}/{uid}"
            child = os.fork()  # that listens, and tells by its status whether it was sent anything
            if not child:
                bound_child()
                os.setresuid(uid, uid, uid)
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(path)
                    os.chmod(path, 0o666)
                    s.listen()
                    heard = 0
                    for _ in programs:
                        c = s.accept()[0]
                        heard += bool(c.recv(1))
                        c.close()
                os._exit(heard)
            until(lambda: os.path.exists(path) and os.stat(path).st_mode & 0o002, "nobody listens")
            commands = [[programs[0], "--socket", path, "Hello"], [programs[1], "--socket", path, "models"],
                        [programs[2], "serve", "--socket", path, "--model", "m", "--requests", "1"]]
            for command in commands:
                text = subprocess.run(command, user=B, group=B, extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, env={**os.environ, "HOME": tmp}, cwd=tmp).stderr.decode()
                check(trusted or "another user listens" in text or "not permitted" in text, f"{command}: {text}")
            # Less than nothing: it has waited in vain for one of them.
            heard = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            check(heard == (len(programs) if trusted else 0), f"user {uid}, who listens, was spoken to by {heard} of {len(programs)}")


TESTS = [test_hidden_models, test_ids, test_metrics, test_grammars, test_refused_grammars, test_connections, test_memory, test_kept, test_log, test_loads, test_impostor]


def main():
    if os.getuid():
        print("several users take root")
        sys.exit(77)
    wanted = sys.argv[3:]
    signal.signal(signal.SIGALRM, too_long)
    for test in TESTS:
        if not wanted or test.__name__ in wanted:
            signal.alarm(PATIENCE)
            test(sys.argv[1], sys.argv[2])
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(failures > 0)


main()
