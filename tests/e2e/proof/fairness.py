#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# fairness.py - four users, one of whom floods the daemon with 100 requests (in full: 1000): the others are served between them,
# not behind them. Users are uids, which takes root; without it the times are printed and the order, which is between users, is not
# seen.
#
# A time is not asserted. Asserted is the order: the flood takes all slots with requests that are long, and light ones are through
# before any of these ends. In full it prints a light request's time to the first token beside a full step and an idle daemon's, and
# what the flood keeps of its tokens a second; tests/sim asserts these in simulated time.
import json
import os
import statistics
import sys
import time

from proof import FULL, Daemon, Tally, UnixConnection, raw_request, size

FLOOD = size(100, 1000)
ROUNDS = 6
tally = Tally()
FLOOD_BODY = {"model": "demo", "prompt": "Once upon a time there was a king who had a daughter and a fox", "max_tokens": 1500, "ignore_eos": True}


def users():
    """Uids that this process may take on."""
    return [] if os.geteuid() else [60001, 60002, 60003, 60004]


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


def first_token(path, tokens):
    """Seconds until the first token of a light request."""
    body = {"model": "demo", "prompt": tokens, "max_tokens": 12, "ignore_eos": True, "temperature": 0, "stream": True}
    c = UnixConnection(path)
    start = time.monotonic()
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = c.getresponse()
    answer.readline()
    taken = time.monotonic() - start
    tally.check(answer.status == 200, f"a light request: {answer.status}")
    answer.read()
    c.close()
    return taken


def light(path, uid, n_prompt, turn=[0]):
    turn[0] += 1
    tokens = [20 + turn[0] % 400] * n_prompt  # nothing of it is in the prefix cache
    if uid is None:
        return first_token(path, tokens)
    return as_user(uid, lambda: first_token(path, tokens))


def ended(d):
    return d.metrics()['request_success_total{finished_reason="length"}']


def rate(d, work):
    """Tokens a second while work() runs."""
    begun, before = time.monotonic(), d.metrics()["generation_tokens_total"]
    work()
    return (d.metrics()["generation_tokens_total"] - before) / (time.monotonic() - begun)


def in_order(d, who, n_prompt, n_before):
    """Light requests one behind the other, while the flood's first requests run: how many end before any of these."""
    first = 0
    for i in range(3 * ROUNDS):
        before = ended(d)
        if d.metrics()["num_requests_waiting"] < 2:
            break
        light(d.path, who[1 + i % 3], n_prompt)
        first += ended(d) == i + 1 + n_before and before == i + n_before
    return first


def once_a_second(d, who, n_prompt, seqs, idle):
    """First tokens of light requests, one a second, and what the flood loses by them: in turns with as long without them."""
    taken, alone, beside = [], [], []

    def ask():
        for i in range(3):
            time.sleep(1)
            taken.append(light(d.path, who[1 + i % 3], n_prompt))

    for _ in range(5):
        alone.append(rate(d, lambda: time.sleep(3)))
        beside.append(rate(d, ask))
    step = min(seqs, FLOOD) / statistics.median(alone)
    print(f"  one light request a second: first token after {statistics.median(taken) * 1e3:.1f} ms in the median, "
          f"{statistics.median(taken) / (idle + step):.2f} times a full step ({step * 1e3:.1f} ms) and an idle daemon's first token, "
          f"{max(taken) / (idle + step):.2f} at most; {sum(beside) / sum(alone):.2f} of the tokens a second without them "
          f"({statistics.median(alone):.0f})", flush=True)


def scenario(who, seqs, n_prompt):
    options = ["--socket-mode", "0666", "--max-num-seqs", str(seqs), "--max-queue", "2000", "--max-connections", "1500",
               "--no-access-log"]
    with Daemon(*options, env={"TXDA_CMODEL": "chips=1,mem=4G"}) as d:
        os.chmod(d.directory, 0o711)
        light(d.path, who[1], n_prompt)
        idle = [light(d.path, uid, n_prompt) for _ in range(3) for uid in who[1:]]
        base = statistics.median(idle)
        pid, release = flood_of(d.path, who[0])
        tally.check(d.until(lambda: d.metrics()["num_requests_running"] == min(seqs, FLOOD)), f"the flood does not take {seqs} slots")
        first = in_order(d, who, n_prompt, len(idle) + 1)
        print(f"a flood of {FLOOD}, {seqs} run at once, prompts of {n_prompt} tokens, first token of an idle daemon after "
              f"{base * 1e3:.1f} ms: {first} light requests one behind the other ended before any of the flood; "
              f"{d.metrics()['num_preemptions_total']:.0f} preempted", flush=True)
        if FULL:
            once_a_second(d, who, n_prompt, seqs, base)
        os.close(release)
        os.waitpid(pid, 0)
        tally.check(d.until(d.idle), "it does not come to rest")
        if who[0] is not None:
            tally.check(first >= 3, f"only {first} light requests were served before the flood's first one ended")


def main():
    who = users()
    if not who:
        print("not root: one user floods and asks, which shows times, and no order between users")
        who = [None] * 4
    scenario(who, 16, 16)
    if FULL:
        scenario(who, 16, 400)
        scenario(who, 256, 16)
        scenario(who, 256, 400)
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
