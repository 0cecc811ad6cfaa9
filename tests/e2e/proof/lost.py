#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# lost.py - a chip that goes away under load, by the device model's fault injection: requests on it
# end with a clear error, the other replica goes on, and the lost one comes back where a chip is left.
# That of the only chip is in states.sh.
import json

from daemon import Daemon, at_once, check, conclude, until

AFTER = 30000  # ops of the chip until it goes
BODY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "temperature": 0}


def model(d):
    return json.loads(d.get("/v1/models/demo")[1])


def chips_of(d):
    """Chips of the replicas that are ready."""
    return sorted(r["chips"] for r in model(d)["replicas"] if r["state"] == "ready")


def ask(d, i=0):
    return d.post("/v1/completions", {**BODY, "seed": i})


def clear(status, answer):
    """An error that says what happened and when to come again."""
    return status == 503 and answer["error"]["code"] == "model_lost" and "chip" in answer["error"]["message"]


def load_until_lost(d, streams):
    """Streams until one of them fails; (answers that were right, errors)."""
    wanted, errors, served = None, [], 0
    while not errors:
        for answer in at_once([lambda: ask(d)] * streams, streams):
            if isinstance(answer, Exception):
                check(False, f"a request ended with {answer!r}")
                return served, errors, wanted
            if answer[0] == 200:
                served += 1
                wanted = wanted or answer[1]["choices"]
                check(answer[1]["choices"] == wanted, "tokens changed")
            else:
                errors.append(answer)
    for status, answer in errors:
        check(clear(status, answer), f"on lost chips: {status} {answer}")
    return served, errors, wanted


def replicas():
    """Chip 0 of three goes; the model is on two: its other replica serves all the while, and the lost one comes to chip 2."""
    with Daemon("--data-parallel-size", "2", env={"TXDA_CMODEL": f"chips=3,mem=64M,faults=lost:chip=0:after={AFTER}"}) as d:
        d.wait_for(lambda: len(chips_of(d)) == 2, "two replicas are not ready")
        check(chips_of(d) == [[0], [1]], f"the replicas are on {chips_of(d)}")
        served, errors, wanted = load_until_lost(d, 4)
        status, answer = ask(d)
        check(status == 200 and answer["choices"] == wanted, f"the other replica: {status} {answer}")
        check(d.get("/health")[0] == 200, f"with one of two replicas: {d.get('/health')}")
        placed = until(lambda: chips_of(d) == [[1], [2]])
        check(placed, f"the lost replica is not placed again: {model(d)}")
        again = at_once([lambda: ask(d)] * 4, 4)
        check(all(a[0] == 200 and a[1]["choices"] == wanted for a in again), "after all it says something else")
        print(f"one of two replicas: {served} answers, {len(errors)} errors ({errors[0][1]['error']['message'] if errors else ''}); now on {chips_of(d)}")


replicas()
conclude()
