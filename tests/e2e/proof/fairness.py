#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# fairness.py - four users, one of whom floods the daemon with 100 requests (in full: 1000): the others are served between them,
# not behind them. Users are uids, which takes root; without it the times are printed and the order, which is between users, is not
# seen.
#
# A time is not asserted but printed: a light request's time to the first token as a ratio to that of an idle daemon, and to a full
# step and its own prefill; and what the flood keeps of its tokens a second alone. tests/sim asserts these in simulated time. Asserted is
# the order: the flood takes all places with requests that are long, and light ones are through before any of these ends.
import json
import os
import statistics
import sys
import time

from proof import FULL, Daemon, Tally, UnixConnection, raw_request, size

FLOOD = size(100, 1000)
ROUNDS = size(6, 25)
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


def light(path, uid, n_prompt):
    tokens = [20 + n_prompt % 7] * n_prompt
    if uid is None:
        return first_token(path, tokens)
    return as_user(uid, lambda: first_token(path, tokens))


def ended(d):
    return d.metrics()['request_success_total{finished_reason="length"}']


def rate(d, work):
    """What work() returns, and the tokens a second that came meanwhile."""
    begun, before = time.monotonic(), d.metrics()["generation_tokens_total"]
    result = work()
    return result, (d.metrics()["generation_tokens_total"] - before) / (time.monotonic() - begun)


def scenario(who, seqs, n_prompt):
    options = ["--socket-mode", "0666", "--max-num-seqs", str(seqs), "--max-queue", "2000", "--max-connections", "1500",
               "--no-enable-prefix-caching", "--no-access-log"]
    with Daemon(*options, env={"TXDA_CMODEL": "chips=1,mem=4G"}) as d:
        os.chmod(d.directory, 0o711)
        light(d.path, who[1], n_prompt)
        idle = [light(d.path, uid, n_prompt) for _ in range(3) for uid in who[1:]]
        pid, release = flood_of(d.path, who[0])
        tally.check(d.until(lambda: d.metrics()["num_requests_running"] == min(seqs, FLOOD)), f"the flood does not take {seqs} places")
        # Not so long that the flood's first requests end.
        alone = rate(d, lambda: time.sleep(1))[1]
        taken, first = [], 0

        def ask():
            nonlocal first
            for i in range(3 * ROUNDS):
                before = ended(d)
                if d.metrics()["num_requests_waiting"] < 2:
                    break
                taken.append(light(d.path, who[1 + i % 3], n_prompt))
                first += ended(d) == i + 1 + len(idle) + 1 and before == i + len(idle) + 1

        beside = rate(d, ask)[1]
        os.close(release)
        os.waitpid(pid, 0)
        if not tally.check(taken, "the flood was over before it began"):
            return
        tally.check(d.until(d.idle), "it does not come to rest")
        idle += [light(d.path, uid, n_prompt) for _ in range(3) for uid in who[1:]]
        base, median = statistics.median(idle), statistics.median(taken)
        print(f"a flood of {FLOOD}, {seqs} run at once, prompts of {n_prompt} tokens: first token of {len(taken)} light requests "
              f"{median / base:.2f} times that of an idle daemon ({base * 1e3:.1f} ms) in the median, "
              f"{median / (base + min(seqs, FLOOD) / alone):.2f} times a full step and that, "
              f"{max(taken) / base:.2f} at most; {first} of them ended before any of the flood; "
              f"{d.metrics()['num_preemptions_total']:.0f} preempted; "
              f"{beside:.0f} tok/s for all, {alone:.0f} before", flush=True)
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
