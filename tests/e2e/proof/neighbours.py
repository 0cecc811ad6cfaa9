#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# neighbours.py - four users with heavy requests: one asks for 64 answers with 20 log probabilities each, one for 2048
# embeddings, one for a grammar that takes long to compile and to follow, one has a model loaded and unloaded again and again.
# Beside them one asks for /version and reads a stream.
#
# Times are printed, not asserted: how long /version takes, and the stream's time between two tokens as a ratio to an idle
# daemon's. Asserted is that the one beside gets every answer, whole and right.
import contextlib
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time

from proof import Daemon, MODEL, Tally, UnixConnection, directory, size

SECONDS = size(2, 60)
STREAM_TOKENS = size(300, 1000)
PROMPT = "Once upon a time there was a king"
tally = Tally()


def many_choices(call):
    call("/v1/completions", {"model": "demo", "prompt": PROMPT, "n": 64, "logprobs": 20, "max_tokens": 400, "ignore_eos": True})


def many_embeddings(call):
    call("/v1/embeddings", {"model": "demo", "input": [[i % 500 + 5, 7, 9] for i in range(2048)]})


def hostile_grammar(call, turn=[0]):
    turn[0] += 1
    call("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True,
                             "guided_regex": "((a|b|[c-z ]){1,40}[.,!?]?){%d}" % (10 + turn[0] % 20)})


def loads(call):
    call("/v1/models/load", {"model": "other"})
    call("/v1/models/unload", {"model": "other"})


@contextlib.contextmanager
def with_vectors():
    """The model compiled so that it gives embeddings, too."""
    with directory() as where:
        subprocess.run([os.environ["COMPILER"], MODEL, "-q", "-o", where + "/case", "--hidden"], check=True)
        yield where + "/case"


class Neighbour:
    """Processes that call work() over and over as a user of its own; leaving it ends them. They have a session of their own,
    as those of a user who has logged in: a kernel with autogroups shares the processors between sessions."""

    def __init__(self, path, uid, work, processes=1):
        self.path, self.uid, self.work, self.processes, self.pid, self.number = path, uid, work, processes, 0, 0

    def call(self, route, body):
        with contextlib.suppress(OSError, ValueError):
            c = UnixConnection(self.path)
            c.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
            c.getresponse().read()
            c.close()

    def __enter__(self):
        self.pid = os.fork()
        if not self.pid:
            try:
                os.setsid()
                while self.number + 1 < self.processes and os.fork():
                    self.number += 1
                if self.uid is not None:
                    os.setgroups([])
                    os.setresgid(self.uid, self.uid, self.uid)
                    os.setresuid(self.uid, self.uid, self.uid)
                while True:
                    self.work(self.call)
            finally:
                os._exit(0)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def ask_versions(path, report):
    """Asks until @report is closed at its other end, and writes there how long each answer took. A process of its own: in a thread
    it would wait for the interpreter that reads the stream."""
    c = UnixConnection(path)
    taken, words = [], ""
    while not words and not select.select([report], [], [], 0.001)[0]:
        start = time.monotonic()
        c.request("GET", "/version")
        answer = c.getresponse()
        if answer.status != 200 or b"version" not in answer.read():
            words = f"/version: {answer.status}"
        taken.append(time.monotonic() - start)
    c.close()
    report.sendall(json.dumps([taken, words]).encode())


@contextlib.contextmanager
def asking(path, taken):
    """Asks for /version meanwhile; afterwards the times are in @taken."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            ask_versions(path, theirs)
        finally:
            os._exit(0)
    theirs.close()
    yield
    ours.shutdown(socket.SHUT_WR)
    with ours, ours.makefile() as report:
        times, words = json.loads(report.read() or '[[], "it died"]')
    os.waitpid(pid, 0)
    tally.check(not words, words)
    taken.extend(times)


def streams(d, seconds):
    """Gaps between tokens of streams that are read one after the other for that long."""
    gaps, end = [], time.monotonic() + seconds
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": STREAM_TOKENS, "ignore_eos": True, "temperature": 0}
    texts = set()
    while time.monotonic() < end:
        before, text, done = None, "", False
        for at, event in d.stream("/v1/completions", body):
            done = event == "[DONE]"
            if done:
                break
            if not tally.check("choices" in event, f"a stream: {event}"):
                return gaps
            text += event["choices"][0]["text"]
            if before is not None:
                gaps.append(at - before)
            before = at
        tally.check(done, "a stream ended early")
        texts.add(text)
    tally.check(len(texts) == 1, "the same request gave different texts")
    return gaps


def measure(d):
    """Seconds that /version took, sorted, and the gaps of streams."""
    taken = []
    with asking(d.path, taken):
        gaps = streams(d, SECONDS)
    return sorted(taken), sorted(gaps)


def show(what, taken, gaps, idle=None):
    print(f"{what}: /version {percentile(taken, 0.5) * 1e3:.2f} ms in the median, {percentile(taken, 0.999) * 1e3:.2f} at the "
          f"99.9th percentile of {len(taken)}; a token every {statistics.mean(gaps) * 1e3:.2f} ms"
          + (f", {statistics.mean(gaps) / statistics.mean(idle):.2f} times that of an idle daemon" if idle else "")
          + f", {percentile(gaps, 0.99) * 1e3:.1f} ms at the 99th percentile", flush=True)


def main():
    root = not os.geteuid()
    users = [60001, 60002, 60003, 60004] if root else [None] * 4
    options = ["--socket-mode", "0666", "--no-access-log", "--load", "demand", "--model", f"other={MODEL}"]
    options += ["--admin-user", "60004"] if root else []
    with with_vectors() as model, Daemon("--model", f"demo={model}", *options, env={"TXDA_CMODEL": "chips=1,mem=4G"}, model=False,
                                         healthy=False) as d:
        os.chmod(d.directory, 0o711)
        d.wait_for(lambda: d.post("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 1})[0] == 200, 120,
                   "the model cannot be loaded")
        _, idle = alone = measure(d)
        show("alone", *alone)
        works = {"64 answers": many_choices, "2048 embeddings": many_embeddings, "a grammar": hostile_grammar, "loads": loads}
        for (name, work), uid in zip(works.items(), users):
            with Neighbour(d.path, uid, work):
                show(f"beside {name}", *measure(d), idle)
        with contextlib.ExitStack() as all_of_them:
            for work, uid in zip(works.values(), users):
                all_of_them.enter_context(Neighbour(d.path, uid, work))
            show("beside all of them", *measure(d), idle)
        tally.check(d.until(d.idle, 120), "it does not come to rest")
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
