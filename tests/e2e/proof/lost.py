#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# lost.py - chips that go away under load, by the device model's fault injection: of two replicas, of a group of two chips with a
# spare group, and of the only group. Requests on lost chips end with a clear error, others go on, and a model whose chips are
# gone comes back where chips are left.
import json
import sys
import time

from proof import Daemon, Tally, at_once

AFTER = 30000  # ops of the chip until it goes
BODY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
tally = Tally()


def model(d):
    return json.loads(d.get("/v1/models/demo")[1])


def chips_of(d):
    """Chips of the replicas that are ready."""
    return sorted(r["chips"] for r in model(d)["replicas"] if r["state"] == "ready")


def ask(d, i=0):
    return d.post("/v1/completions", {**BODY, "seed": i}, timeout=300)


def clear(status, answer):
    """An error that says what happened and when to come again."""
    return status == 503 and answer["error"]["code"] == "model_lost" and "chip" in answer["error"]["message"]


def load_until_lost(d, streams, seconds=120):
    """Streams until one of them fails; (answers that were right, errors)."""
    wanted, errors, served = None, [], 0
    end = time.monotonic() + seconds
    while not errors and time.monotonic() < end:
        for answer in at_once([lambda: ask(d)] * streams, streams):
            if isinstance(answer, Exception):
                tally.check(False, f"a request ended with {answer!r}")
                return served, errors
            if answer[0] == 200:
                served += 1
                wanted = wanted or answer[1]["choices"]
                tally.check(answer[1]["choices"] == wanted, "tokens changed")
            else:
                errors.append(answer)
    for status, answer in errors:
        tally.check(clear(status, answer), f"on lost chips: {status} {answer}")
    tally.check(errors, "no request met the lost chip")
    return served, errors, wanted


def replicas():
    """Chip 0 of three goes; the model is on two: its other replica serves all the while, and the lost one comes to chip 2."""
    with Daemon("--data-parallel-size", "2", env={"TXDA_CMODEL": f"chips=3,mem=64M,faults=lost:chip=0:after={AFTER}"}) as d:
        d.wait_for(lambda: len(chips_of(d)) == 2, 60, "two replicas are not ready")
        tally.check(chips_of(d) == [[0], [1]], f"the replicas are on {chips_of(d)}")
        served, errors, wanted = load_until_lost(d, 4)
        status, answer = ask(d)
        tally.check(status == 200 and answer["choices"] == wanted, f"the other replica: {status} {answer}")
        tally.check(d.get("/health")[0] == 200, f"with one of two replicas: {d.get('/health')}")
        placed = d.until(lambda: chips_of(d) == [[1], [2]], 60)
        tally.check(placed, f"the lost replica is not placed again: {model(d)}")
        again = at_once([lambda: ask(d)] * 4, 4)
        tally.check(all(a[0] == 200 and a[1]["choices"] == wanted for a in again), "after all it says something else")
        print(f"one of two replicas: {served} answers, {len(errors)} errors ({errors[0][1]['error']['message'] if errors else ''}); now on {chips_of(d)}")


def group():
    """A group of two loses a chip; there are two more."""
    with Daemon("--tp-size", "2", env={"TXDA_CMODEL": f"chips=4,mem=64M,faults=lost:chip=1:after={AFTER}"}) as d:
        tally.check(chips_of(d) == [[0, 1]], f"the model is on {chips_of(d)}")
        served, errors, wanted = load_until_lost(d, 3)
        lost = d.get("/health")
        came = d.until(lambda: d.get("/health")[0] == 200, 60)
        tally.check(came, f"a lost group is not placed again: {model(d)}")
        tally.check(chips_of(d) in ([[2, 3]], [[0, 2]], [[0, 3]]), f"placed on {chips_of(d)}")
        status, answer = ask(d)
        tally.check(status == 200 and answer["choices"] == wanted, f"on other chips: {status} {answer}")
        print(f"a group of two: {served} answers, {len(errors)} errors, /health then {lost[0]} {lost[1].decode()}; now on {chips_of(d)}")


def only():
    """The only chip goes: a word on it, no hang, an end in order; a restart has its chip again."""
    env = {"TXDA_CMODEL": f"chips=1,mem=64M,faults=lost:chip=0:after={AFTER}"}
    with Daemon(env=env) as d:
        served, errors, wanted = load_until_lost(d, 3)
        status, data = d.get("/health")
        tally.check(status == 503 and b'"state":"lost"' in data, f"/health without chips: {status} {data}")
        status, answer = ask(d)
        tally.check(status == 503 and answer["error"]["code"] in ("model_lost", "insufficient_memory", "model_failed"), f"without chips: {status} {answer}")
        time.sleep(6)  # it is tried again each 5 s
        tally.check(d.get("/health")[0] == 503, "healthy without chips")
        tally.check(d.get("/metrics")[0] == 200, "no metrics without chips")
        tally.check(d.stop() == 0, f"exit status {d.process.returncode}")
        d.start()
        status, answer = ask(d)
        tally.check(status == 200 and answer["choices"] == wanted, f"after a restart: {status} {answer}")
        print(f"the only chip: {served} answers, {len(errors)} errors, /health then {data.decode()}")


def main():
    replicas()
    group()
    only()
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
