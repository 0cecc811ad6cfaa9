#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# slow_reader.py - clients that read nothing of long streams: others' requests are served as without
# them, what is held for them is bounded, and they are disconnected after --stall-seconds.

from daemon import SANITIZED, Daemon, beside, check, conclude, raw_request, size, until

STALL = 5
READERS = size(12, 100)
CHOICES = 2
# Made ahead of a reader, by docs/api.md, and what one event may add to it.
AHEAD = (256 << 10) + (64 << 10)
# KiB for each while it lasts: results of a request and what is ahead of its reader.
MEMORY_EACH = 2048 if not SANITIZED else 16384
# KiB that may stay when they are gone, though others are served on.
MEMORY_ALLOWANCE = 4096 if not SANITIZED else READERS * MEMORY_EACH + 65536
TOKENS = 1000
# What the engine has made of an answer, counted as it comes: tokens with 22 log probabilities of 8 bytes.
RESULTS = CHOICES * TOKENS * (22 * 8 + 32)
BODY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True, "stream": True,
        "logprobs": 20, "n": CHOICES}
LIGHT = {"model": "demo", "prompt": "A fox", "max_tokens": 40, "ignore_eos": True, "temperature": 0}


def main():
    with Daemon("--stall-seconds", str(STALL), "--max-num-seqs", "256", "--kv-cache-memory", "32M") as d:
        d.warm_up()
        wanted = d.post("/v1/completions", LIGHT)[1]["choices"]
        check(until(lambda: d.metrics()["http_connections"] == 1), "connections are left")
        before = d.sample_at_rest()
        readers = [raw_request(d.path, "/v1/completions", {**BODY, "seed": i}) for i in range(READERS)]
        check(until(lambda: d.metrics()["num_requests_running"] + d.metrics()["num_requests_waiting"] > 0), "they do not run")
        room = held = d.metrics()["http_held_bytes"]
        most = before["rss"]
        served = 0
        while d.metrics()["http_connections"] > 1:
            status, answer = d.post("/v1/completions", LIGHT)
            if not check(status == 200 and answer["choices"] == wanted,
                         f"beside readers that do not read: {status} {answer}"):
                break
            served += 1
            held = max(held, d.metrics()["http_held_bytes"])
            most = max(most, d.sample()["rss"])
        gone = 0
        for s in readers:
            try:
                while s.recv(1 << 16):
                    pass
                gone += 1
            except ConnectionResetError:
                gone += 1
            s.close()
        check(gone == READERS, f"{READERS - gone} readers are still connected")
        check(served > 0, "nobody was served beside them")
        check(until(lambda: d.idle() and not d.metrics()["kv_cache_usage_perc"]), "their requests are still there")
        more = {**LIGHT, "max_tokens": 1100}
        with beside(lambda: check([*d.stream("/v1/completions", more)][-1] == "[DONE]", "a stream afterwards")):
            rest = d.rss_below(before["rss"] + MEMORY_ALLOWANCE)
        after = d.sample_at_rest()
        aborted = d.metrics()['request_success_total{finished_reason="abort"}']
        print(f"{READERS} readers that do not read: {served} others served, {held / 1024:.0f} KiB held at most, "
              f"memory {before['rss']} KiB before, {most} at most, {rest} after; {aborted:.0f} aborts")
        check(held <= room + READERS * (AHEAD + RESULTS),
              f"{held} bytes held for {READERS} readers, {room} at their beginning")
        check(most - before["rss"] <= READERS * MEMORY_EACH,
              f"memory grew from {before['rss']} to {most} KiB for {READERS} readers")
        check(rest - before["rss"] <= MEMORY_ALLOWANCE, f"memory grew from {before['rss']} to {rest} KiB and stays so")
        for key in ("fds", "threads"):
            check(after[key] == before[key], f"{key}: {before[key]} before, {after[key]} after")
    conclude()


main()
