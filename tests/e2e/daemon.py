# SPDX-License-Identifier: MIT
"""
What the end-to-end tests in Python share: a daemon with a socket and a log of its own, requests over that socket, also as
another user, what /metrics and /proc say about it, files of tensors, and a count of checks that failed.

TXDAD names the daemon, MODEL and DRAFT directories of models, CACHE_DIRECTORY a cache that is shared with other tests;
PROOF=full runs a proof in its full length rather than in seconds.
"""
import contextlib
import ctypes
import http.client
import json
import math
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

FULL = os.environ.get("PROOF") == "full"
MODEL = os.environ.get("MODEL")
SANITIZED = "RSS_MARGIN_KIB" in os.environ
# Bounds what would otherwise wait for ever; for machines that are slow or busy, and no expectation.
PATIENCE = 600
failures = 0
# Crowds take descriptors.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def size(short, full):
    """How much of something: in a test of seconds, and in full."""
    return full if FULL else short


def check(right, *words):
    global failures
    if not right:
        failures += 1
        print("FAIL:", *words, flush=True)
    return right


def conclude():
    """Ends the program."""
    print(f"{failures} checks failed" if failures else "all checks passed")
    sys.exit(1 if failures else 0)


def until(condition, seconds=60):
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def as_user(uid, groups=()):
    """Makes this process one of that user's."""
    os.setgroups(groups)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def connect(path, uid=None, groups=(), n=1):
    """
    @n connected sockets; those of a user are made by a process that is that user, as the kernel remembers who connects. connect()
    waits for its turn while many do, which one with a time limit would not.
    """
    found = []
    if uid is None:
        found = [socket.socket(socket.AF_UNIX) for _ in range(n)]
        for s in found:
            s.connect(path)
    else:
        ours, theirs = socket.socketpair()
        child = os.fork()
        if not child:
            try:
                as_user(uid, groups)
                for _ in range(n):
                    with socket.socket(socket.AF_UNIX) as s:
                        s.connect(path)
                        socket.send_fds(theirs, [b"x"], [s.fileno()])
            finally:
                os._exit(0)
        theirs.close()
        with ours:
            while len(found) < n:
                data, fds, _, _ = socket.recv_fds(ours, 1, 1)
                if not data:
                    raise OSError(f"user {uid} has {len(found)} of {n} connections")
                found += [socket.socket(fileno=fd) for fd in fds]
        os.waitpid(child, 0)
    for s in found:
        s.settimeout(PATIENCE)
    return found


class Connection(http.client.HTTPConnection):
    """Over a socket that is connected already."""

    def __init__(self, sock):
        super().__init__("localhost")
        self.sock = sock


def request_bytes(method, route, body=None, more=""):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"{method} {route} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def raw_request(path, route, body, uid=None):
    """A connected socket on which the request was sent and nothing was read."""
    s, = connect(path, uid)
    s.sendall(request_bytes("POST", route, body))
    return s


def read_answer(s):
    """(status, bytes) of a socket's next answer, whose connection is kept; status 0: it was closed without one."""
    answer = http.client.HTTPResponse(s)
    try:
        answer.begin()
        return answer.status, answer.read()
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return 0, b""


class Daemon:
    """A txdad. Used by with: leaving it ends the daemon and, after an error, shows its log."""

    def __init__(self, *options, env=None, directory=None, model=True, ready="/health"):
        """@model: MODEL is served as demo; @ready: what answers 200 once it is (None: it is not waited for)."""
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp()
        os.chmod(self.directory, 0o711)
        self.path = os.path.join(self.directory, "txda.sock")
        self.log_path = os.path.join(self.directory, "log")
        self.command = [os.environ["TXDAD"], "--socket", self.path]
        if model:
            self.command += ["--model", "demo=" + MODEL]
        self.command += list(options)
        self.env = {**os.environ, "TXDA_BACKEND": "cmodel", **(env or {})}
        self.ready = ready
        self.failures = failures
        self.start()

    def start(self):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdin=subprocess.DEVNULL, env=self.env)
        if self.ready:
            self.wait_for(lambda: self.get(self.ready)[0] == 200, f"{self.ready} is not answered with 200")

    def wait_for(self, condition, words):
        """Until it is true; connections that fail count as not yet."""
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"FAIL: the daemon ended with {self.process.returncode}: {words}\n{self.log()}")
            if time.monotonic() > end:
                raise SystemExit(f"FAIL: {words}\n{self.log()}")
            time.sleep(0.02)

    def log(self, last=4000):
        with open(self.log_path, errors="replace") as log:
            return log.read()[-last:]

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            try:
                check(not self.stop(), f"the daemon ended with {self.process.returncode}")
            except subprocess.TimeoutExpired:
                check(False, "the daemon does not end")
                self.kill()
        if kind not in (None, SystemExit) or failures > self.failures:
            print("--- the daemon's log:\n" + self.log())
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- requests

    def call(self, method, route, body=None, uid=None, groups=()):
        """(status, headers, bytes)"""
        with contextlib.closing(Connection(connect(self.path, uid, groups)[0])) as c:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            c.request(method, route, data, {"Content-Type": "application/json"})
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()

    def get(self, route, uid=None):
        status, _, data = self.call("GET", route, uid=uid)
        return status, data

    def post(self, route, body, uid=None, groups=()):
        """(status, JSON)"""
        status, _, data = self.call("POST", route, body, uid, groups)
        return status, json.loads(data)

    def stream(self, route, body, uid=None):
        """The events of a stream as JSON; "[DONE]" is the last one."""
        with contextlib.closing(Connection(connect(self.path, uid)[0])) as c:
            c.request("POST", route, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
            answer = c.getresponse()
            if answer.status != 200:
                yield {"status": answer.status, **json.loads(answer.read())}
                return
            for line in answer:
                if line.startswith(b"data: "):
                    data = line[6:].strip()
                    yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    def tokens(self, model, messages, **more):
        return self.post("/tokenize", {"model": model, "messages": messages, **more})[1].get("tokens")

    # ---- what it says of itself

    def metrics(self, model="demo"):
        """{name: value}, of the daemon and of one model; further labels stay in the name."""
        found = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            match = re.fullmatch(r'txda_(\w+)(?:\{model_name="([^"]*)",?(.*)\})?(\{.*\})?', name)
            if match and match[2] in (None, model):
                found[match[1] + (("{" + match[3] + "}") if match[3] else match[4] or "")] = float(value)
        return found

    def metric(self, name, model="demo"):
        return self.metrics(model)[name]

    def idle(self, model="demo"):
        m = self.metrics(model)
        return not m["num_requests_running"] and not m["num_requests_waiting"]

    def held(self):
        """Bytes that requests hold, but for what is kept for later ones."""
        m = self.metrics()
        return m["http_held_bytes"] - m["http_kept_bytes"]

    def sample(self):
        """Its memory in KiB, its descriptors and its threads."""
        pid = self.process.pid
        found = {}
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                for line in rollup:
                    key, *rest = line.split()
                    if key in ("Rss:", "Pss:"):
                        found[key[:-1].lower()] = int(rest[0])
            found["fds"] = len(os.listdir(f"/proc/{pid}/fd"))
        except PermissionError:  # it is not dumpable, and we are not root
            with open(f"/proc/{pid}/status") as status:
                rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
            found.update(rss=rss, pss=rss, fds=0)
        found["threads"] = len(os.listdir(f"/proc/{pid}/task"))
        return found

    def sample_at_rest(self):
        """The same when nothing changes any more: the daemon closes a connection a moment after its client."""
        found, same = self.sample(), 0
        while same < 10:
            time.sleep(0.05)
            now = self.sample()
            same = same + 1 if (now["fds"], now["threads"]) == (found["fds"], found["threads"]) else 0
            found = now
        return found

    def warm_up(self):
        """
        Uses each KV block of a cache of 32 MiB: the device model's memory is the daemon's, and fresh pages of it would count as
        growth.
        """
        prompts = [[i + 5] * 1400 for i in range(6)]
        at_once([lambda p=p: self.post("/v1/completions", {"model": "demo", "prompt": p, "max_tokens": 1})
                 for p in prompts], 6)

    def rss_below(self, limit):
        """The KiB that are resident once they are no more than @limit, or after a while: the daemon gives memory back late."""
        until(lambda: self.sample()["rss"] <= limit)
        return self.sample()["rss"]


def at_once(calls, threads):
    """Calls each of @calls, so many at a time; their results in order."""
    results = [None] * len(calls)
    order = iter(range(len(calls)))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                i = next(order, None)
            if i is None:
                return
            try:
                results[i] = calls[i]()
            except Exception as e:  # the caller compares: an exception is a wrong answer
                results[i] = e
    crew = [threading.Thread(target=work) for _ in range(min(threads, len(calls)))]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return results


@contextlib.contextmanager
def beside(work):
    """Calls work() again and again in a thread meanwhile, once at least; an exception in it is a failure."""
    over = threading.Event()
    wrong = []

    def go_on():
        try:
            work()
            while not over.is_set():
                work()
        except Exception as e:
            wrong.append(e)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        check(not wrong, f"beside it: {wrong}")


@contextlib.contextmanager
def directory():
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# ---- mounts of this process and its children alone

MS_REMOUNT, MS_REC, MS_PRIVATE = 32, 1 << 14, 1 << 18
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def own_mounts():
    """A namespace of mounts, of a user namespace unless root; whether that could be had."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS if not uid else CLONE_NEWNS | CLONE_NEWUSER):
        return False
    if uid:
        for name, words in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open("/proc/self/" + name, "w") as f:
                f.write(words)
    return not libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)


def mount(kind, path, options, flags=0):
    return not libc.mount(kind.encode(), path.encode(), kind.encode(), flags, options.encode())


# ---- files of tensors


def read_tensors(path):
    """Metadata, and name -> (type, shape, bytes)."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


def numbers(tensor):
    kind, _, data = tensor
    return struct.unpack("<%d%s" % (len(data) // 4, "i" if kind == "I32" else "f"), data)


def log_probability(row, token):
    top = max(row)
    return row[token] - top - math.log(sum(math.exp(x - top) for x in row))
