#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# fairness.py - four users, one of whom floods the daemon with 100 requests (in full: 1000): the others are served between them,
# not behind them. Users are uids, which takes root, or a range of uids of one's own (newuidmap, /etc/subuid); with neither, one
# user's requests of different length still show the order of service.
#
# A time is not asserted but printed: each light user's time to the first token as a ratio to that of an idle daemon. Asserted is
# the order: while the flood waits, a light request is through after a handful of the flood's, and its first token takes a handful
# of steps.
import json
import os
import statistics
import sys
import threading
import time

from proof import Daemon, Tally, UnixConnection, raw_request, size

FLOOD = size(100, 1000)
ROUNDS = size(5, 20)
SEQS = 16
tally = Tally()
FLOOD_BODY = {"model": "demo", "prompt": "Once upon a time there was a king who had a daughter and a fox", "max_tokens": 60, "ignore_eos": True}
LIGHT_BODY = {"model": "demo", "prompt": "Tell me of the bear in the wood", "max_tokens": 12, "ignore_eos": True, "temperature": 0}


def users():
    """Uids that this process may take on."""
    if os.geteuid():
        return []
    return [60001, 60002, 60003, 60004]


def as_user(uid, work):
    """Runs work() in a process of that uid; its result, as JSON."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(out)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(into, "w") as f:
                json.dump(work(), f)
            status = 0
        except BaseException as e:
            print(f"uid {uid}: {e!r}", flush=True)
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out) as f:
        data = f.read()
    os.waitpid(pid, 0)
    return json.loads(data) if data else None


def flood_of(path, uid):
    """Sends all of it and holds it, as that user; (pid, the end of a pipe whose closing ends it)."""
    told, tell = os.pipe()
    hold, release = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(release)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            streams = [raw_request(path, "/v1/completions", {**FLOOD_BODY, "seed": i}) for i in range(FLOOD)]
            os.write(tell, b"x")
            os.read(hold, 1)
            for s in streams:
                s.close()
        finally:
            os._exit(0)
    os.close(tell)
    os.close(hold)
    if not os.read(told, 1):
        tally.check(False, "the flood could not be sent")
    return pid, release


def first_token(path):
    """Seconds until the first token of a light request."""
    c = UnixConnection(path)
    start = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps({**LIGHT_BODY, "stream": True}), {"Content-Type": "application/json"})
    answer = c.getresponse()
    answer.readline()
    taken = time.monotonic() - start
    tally.check(answer.status == 200, f"a light request: {answer.status}")
    answer.read()
    c.close()
    return taken


def light(path, uid):
    if uid is None:
        return first_token(path)
    return as_user(uid, lambda: first_token(path))


def ended(d):
    m = d.metrics()
    return m['request_success_total{finished_reason="length"}'], m["engine_steps_total"]


def main():
    who = users()
    options = ["--socket-mode", "0666", "--max-num-seqs", str(SEQS), "--kv-cache-memory", "64M", "--max-queue", "2000", "--max-connections", "1500",
               "--no-enable-prefix-caching", "--no-access-log"]
    with Daemon(*options) as d:
        os.chmod(d.directory, 0o711)
        if not who:
            print("not root: one user floods and asks, so that only the order within one user is seen")
            who = [None] * 4
        light(d.path, who[1])
        idle = statistics.median([light(d.path, uid) for _ in range(5) for uid in who[1:]])
        pid, release = flood_of(d.path, who[0])
        ratios, overtaken, steps = [], [], []
        for _ in range(ROUNDS):
            for uid in who[1:]:
                m = d.metrics()
                waiting = m["num_requests_waiting"]
                if waiting < 2 * SEQS:
                    break
                before = ended(d)
                ratios.append(light(d.path, uid) / idle)
                after = ended(d)
                overtaken.append(after[0] - before[0] - 1)
                steps.append(after[1] - before[1])
        tally.check(len(ratios) >= 3, f"the flood was over after {len(ratios)} light requests")
        os.close(release)
        os.waitpid(pid, 0)
        tally.check(d.until(d.idle), "it does not come to rest")
        print(f"a flood of {FLOOD}: {len(ratios)} light requests, first token {statistics.median(ratios):.1f} times that of an idle daemon "
              f"({idle * 1e3:.1f} ms) in the median, {max(ratios):.1f} at most; {max(overtaken):.0f} of the flood ended meanwhile at most; "
              f"{statistics.median(steps):.0f} steps a light request in the median")
        if who[0] is not None:
            # All that ran when it came may end before it, and as many again: no more.
            tally.check(max(overtaken) <= 3 * SEQS, f"{max(overtaken)} of the flood were served before a light request")
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
