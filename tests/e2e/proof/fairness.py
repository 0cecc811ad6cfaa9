#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# fairness.py - one user floods the daemon with 100 requests (in full: 1000), and others are served
# between them, not behind them; then priorities: of the requests that wait for the one place there
# is, the most urgent one goes first. Users are uids, which takes root. The policies themselves are
# those of test_engine_sharing and tests/sim, in simulated time: this shows that they have their way
# through the daemon.
import os
import re
import signal
import sys

from daemon import Daemon, check, conclude, raw_request, size, until

FLOOD, SLOTS = size(100, 1000), 16
FLOODER, LIGHT = 60001, (60002, 60003, 60004)


def ended(d):
    return d.metrics()['request_success_total{finished_reason="length"}']


def flood():
    """The flood takes all slots with long requests; light ones are through before any of these ends."""
    options = ["--socket-mode", "0666", "--max-num-seqs", str(SLOTS), "--max-queue", "2000", "--max-connections", "1500"]
    with Daemon(*options, env={"TXDA_CMODEL": "chips=1,mem=4G"}) as d:
        body = {"model": "demo", "prompt": "Once upon a time there was a king", "max_tokens": 1500, "ignore_eos": True}
        crowd = [raw_request(d.path, "/v1/completions", {**body, "seed": i}, FLOODER) for i in range(FLOOD)]
        check(until(lambda: d.metrics()["num_requests_running"] == SLOTS), f"the flood does not take {SLOTS} slots")
        for i, uid in enumerate(LIGHT):
            # Nothing of it is in the prefix cache.
            light = {"model": "demo", "prompt": [20 + i] * 16, "max_tokens": 12, "ignore_eos": True}
            check(d.post("/v1/completions", light, uid)[0] == 200, f"a light request of user {uid}")
        through = ended(d)
        check(through == len(LIGHT), f"{through - len(LIGHT):.0f} requests of the flood ended before the light ones")
        for s in crowd:
            s.close()
        check(until(d.idle), "it does not come to rest")


def priorities():
    with Daemon("--max-num-seqs", "1") as d:
        # One has the place until all others wait. Who waits rises by one every 256 steps: they come together, far apart.
        first = raw_request(d.path, "/v1/completions", {"prompt": "Once", "ignore_eos": True, "max_tokens": 1900,
                                                        "n": 64, "priority": -32})
        check(until(lambda: d.metrics()["num_requests_running"] == 1), "the first one does not run")
        d.process.send_signal(signal.SIGSTOP)
        waiting = [raw_request(d.path, "/v1/completions", {
            "prompt": "Once", "ignore_eos": True, "max_tokens": 600 + priority, "priority": priority})
            for priority in (32, 0, -31)]
        d.process.send_signal(signal.SIGCONT)
        check(until(lambda: len(re.findall(rb'"running":[1-9]', d.get("/v1/requests")[1])) == 4), "they do not wait")
        first.close()
        for s in waiting:
            s.recv(1)
        # In the daemon's own order: clients may be told late. Each is known by its tokens.
        order = re.findall(r"\+(569|600|632) tokens", d.log())
        check(order == ["569", "600", "632"], f"by tokens they end in the order {order}")


def main():
    if os.geteuid():
        print("several users take root")
        sys.exit(77)
    flood()
    priorities()
    conclude()


main()
