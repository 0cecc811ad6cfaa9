# SPDX-License-Identifier: MIT
"""
What the proofs share: a daemon with a socket and a log of its own, requests over that socket, what
/metrics and /proc say about it, and a tally of checks.

TXDAD names the daemon, MODEL and DRAFT directories of models, CACHE_DIRECTORY a cache that is
shared with other tests; PROOF=full runs a proof in its full length rather than in seconds.
"""
import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

FULL = os.environ.get("PROOF") == "full"
TXDAD = os.environ["TXDAD"]
MODEL = os.environ["MODEL"]
SANITIZED = "RSS_MARGIN_KIB" in os.environ
# Crowds take descriptors.
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def size(short, full):
    """How much of something: in a test of seconds, and in full."""
    return full if FULL else short


class Tally:
    """Counts what failed; conclude() ends the program."""

    def __init__(self):
        self.failures = 0

    def check(self, right, words):
        if not right:
            self.failures += 1
            print("FAIL:", words, flush=True)
        return right

    def conclude(self):
        print(f"{self.failures} checks failed" if self.failures else "all checks passed")
        sys.exit(1 if self.failures else 0)


def connected(path, timeout):
    """A socket; it waits for its turn while many connect, which one with a time limit would not."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.settimeout(timeout)
    return s


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=120):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = connected(self.path, self.timeout)


def raw_request(path, route, body):
    """A connected socket on which the request was sent and nothing was read."""
    data = json.dumps(body).encode()
    s = connected(path, 120)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" %
              (route.encode(), len(data)) + data)
    return s


class Daemon:
    """A txdad. Used by with: leaving it ends the daemon and, after an error, shows its log."""

    def __init__(self, *options, env=None, directory=None, model=True, healthy=True):
        self.own = directory is None
        self.directory = directory or tempfile.mkdtemp()
        self.path = os.path.join(self.directory, "txda.sock")
        self.log_path = os.path.join(self.directory, "log")
        self.command = [TXDAD, "--socket", self.path]
        if model:
            self.command += ["--model", "demo=" + MODEL]
        self.command += list(options)
        self.env = {**os.environ, "TXDA_BACKEND": "cmodel", **(env or {})}
        self.process = None
        self.healthy = healthy
        self.start()

    def start(self):
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdin=subprocess.DEVNULL, env=self.env)
        if self.healthy:
            self.wait_healthy()

    def wait_healthy(self, seconds=120):
        self.wait_for(lambda: self.get("/health")[0] == 200, seconds, "it did not become healthy")

    def wait_for(self, condition, seconds, words):
        """Until it is true; connections that fail count as not yet."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if condition():
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"FAIL: the daemon ended with {self.process.returncode}: {words}\n{self.log()}")
            if time.monotonic() > end:
                raise SystemExit(f"FAIL: {words}\n{self.log()}")
            time.sleep(0.02)

    def until(self, condition, seconds=20):
        """Whether it becomes true in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def log(self, last=4000):
        with open(self.log_path, errors="replace") as log:
            return log.read()[-last:]

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(60)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if kind not in (None, SystemExit):
            print("--- the daemon's log:\n" + self.log())
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- requests

    def call(self, method, route, body=None, timeout=120):
        """(status, headers, bytes)"""
        c = UnixConnection(self.path, timeout)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            c.request(method, route, data, {"Content-Type": "application/json"})
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()

    def get(self, route):
        status, _, data = self.call("GET", route)
        return status, data

    def post(self, route, body, timeout=120):
        """(status, JSON)"""
        status, _, data = self.call("POST", route, body, timeout)
        return status, json.loads(data)

    def stream(self, route, body, timeout=120):
        """The events of a stream as (seconds since the request, JSON); [DONE] is the last one."""
        c = UnixConnection(self.path, timeout)
        try:
            start = time.monotonic()
            c.request("POST", route, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
            answer = c.getresponse()
            if answer.status != 200:
                yield time.monotonic() - start, {"status": answer.status, **json.loads(answer.read())}
                return
            for line in answer:
                if line.startswith(b"data: "):
                    data = line[6:].strip()
                    yield time.monotonic() - start, "[DONE]" if data == b"[DONE]" else json.loads(data)
        finally:
            c.close()

    # ---- what it says of itself

    def metrics(self, model="demo"):
        """{name: value}, of the daemon and of one model; further labels stay in the name."""
        found = {}
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith("#"):
                continue
            name, value = line.rsplit(" ", 1)
            match = re.fullmatch(r'txda_(\w+)(?:\{model_name="([^"]*)",?(.*)\})?(\{code=.*\})?', name)
            if match and match[2] in (None, model):
                found[match[1] + (("{" + match[3] + "}") if match[3] else match[4] or "")] = float(value)
        return found

    def idle(self, model="demo"):
        m = self.metrics(model)
        return not m.get("num_requests_running") and not m.get("num_requests_waiting")

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
        """Uses each KV block of a cache of 32 MiB: the device model's memory is the daemon's, and fresh pages of it would
        count as growth."""
        prompts = [[i + 5] * 1400 for i in range(6)]
        at_once([lambda p=p: self.post("/v1/completions", {"model": "demo", "prompt": p, "max_tokens": 1}) for p in prompts], 6)

    def rss_below(self, limit, seconds=20):
        """The KiB that are resident once they are no more than @limit, or after that time: a moment after a burst the daemon
        gives its memory back."""
        self.until(lambda: self.sample()["rss"] <= limit, seconds)
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
def directory():
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
