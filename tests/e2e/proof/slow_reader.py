#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# slow_reader.py - clients that read nothing of long streams: others' requests are served as without them, what is held for
# them is bounded, and they are disconnected after --stall-seconds.
import contextlib
import sys
import threading
import time

from proof import SANITIZED, Daemon, Tally, raw_request, size

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
BODY = {"model": "demo", "prompt": "Once upon a time", "max_tokens": TOKENS, "ignore_eos": True, "stream": True, "logprobs": 20, "n": CHOICES}
LIGHT = {"model": "demo", "prompt": "A fox", "max_tokens": 40, "ignore_eos": True, "temperature": 0}
tally = Tally()


@contextlib.contextmanager
def others(d):
    """Somebody is served all the while: two streams, one of which runs when the other ends."""
    over = threading.Event()

    def read(tokens):
        while not over.is_set():
            for _ in d.stream("/v1/completions", {**LIGHT, "max_tokens": tokens}):
                if over.is_set():
                    break
    crew = [threading.Thread(target=read, args=(tokens,)) for tokens in (1100, 1500)]
    for thread in crew:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in crew:
            thread.join()


def main():
    with Daemon("--stall-seconds", str(STALL), "--max-num-seqs", "256", "--kv-cache-memory", "32M") as d:
        d.warm_up()
        wanted = d.post("/v1/completions", LIGHT)[1]["choices"]
        d.until(lambda: d.metrics()["http_connections"] == 1)
        before = d.sample_at_rest()
        readers = [raw_request(d.path, "/v1/completions", {**BODY, "seed": i}) for i in range(READERS)]
        d.until(lambda: d.metrics()["num_requests_running"] + d.metrics()["num_requests_waiting"] > 0)
        room = held = d.metrics()["http_held_bytes"]
        most = before["rss"]
        served = 0
        start = time.monotonic()
        while d.metrics()["http_connections"] > 1:
            status, answer = d.post("/v1/completions", LIGHT)
            if not tally.check(status == 200 and answer["choices"] == wanted, f"beside readers that do not read: {status} {answer}"):
                break
            served += 1
            held = max(held, d.metrics()["http_held_bytes"])
            most = max(most, d.sample()["rss"])
            if time.monotonic() - start > 200:
                tally.check(False, f"after 200 s readers are still there: {d.metrics()['http_connections']}")
                break
        gone = 0
        for s in readers:
            s.settimeout(10)
            got = 0
            try:
                while data := s.recv(1 << 16):
                    got += len(data)
                gone += 1
            except ConnectionResetError:
                gone += 1
            except TimeoutError:
                pass
            s.close()
        tally.check(gone == READERS, f"{READERS - gone} readers are still connected")
        tally.check(served > 0, "nobody was served beside them")
        tally.check(d.until(lambda: d.idle() and not d.metrics()["kv_cache_usage_perc"]), "their requests are still there")
        seconds = time.monotonic() - start
        with others(d):
            rest = d.rss_below(before["rss"] + MEMORY_ALLOWANCE)
        after = d.sample_at_rest()
        aborted = d.metrics()['request_success_total{finished_reason="abort"}']
        print(f"{READERS} readers that do not read: {served} others served, {held / 1024:.0f} KiB held at most, all gone after "
              f"{seconds:.0f} s; memory {before['rss']} KiB before, {most} at most, {rest} after; {aborted:.0f} aborts")
        tally.check(held <= room + READERS * (AHEAD + RESULTS), f"{held} bytes held for {READERS} readers, {room} at their beginning")
        tally.check(most - before["rss"] <= READERS * MEMORY_EACH, f"memory grew from {before['rss']} to {most} KiB for {READERS} readers")
        tally.check(rest - before["rss"] <= MEMORY_ALLOWANCE, f"memory grew from {before['rss']} to {rest} KiB and stays so")
        for key in ("fds", "threads"):
            tally.check(after[key] == before[key], f"{key}: {before[key]} before, {after[key]} after")
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
