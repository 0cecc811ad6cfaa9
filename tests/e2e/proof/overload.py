#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# overload.py - many long requests on few KV blocks and a short queue: they wait, are preempted, and all end; what the queue
# does not hold gets 429 with Retry-After; what no cache could ever hold gets 400; nothing is left behind.
import json
import sys

from proof import SANITIZED, Daemon, Tally, at_once, size

N = size(60, 400)
QUEUE = 24
SEQS = 12
BODY = 4 << 20
# KiB that may stay of bodies that were refused.
MEMORY_ALLOWANCE = 8192 if not SANITIZED else 1000000
tally = Tally()


def ask(d, i):
    status, headers, data = d.call("POST", "/v1/completions", {
        "model": "demo", "prompt": [10 + i % 50] * (100 + i * 7 % 200), "max_tokens": 60 + i % 3 * 20, "ignore_eos": True, "temperature": 0}, timeout=600)
    return i, status, headers.get("Retry-After"), json.loads(data)


def bodies(d):
    """Texts as long as a body may be, each longer than the context: they are read, parsed and refused, and leave nothing."""
    text = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "a fox and " * (BODY // 10 - 100)}]}).encode()
    before = d.sample()["rss"]
    answers = at_once([lambda: d.call("POST", "/v1/chat/completions", text)[0]] * 8, 4)
    tally.check(answers == [400] * 8, f"texts of {len(text)} bytes: {answers}")
    after = d.rss_below(before + MEMORY_ALLOWANCE)
    print(f"8 texts of {len(text)} bytes: memory {before} KiB before, {after} after")
    tally.check(after - before <= MEMORY_ALLOWANCE, f"memory grew from {before} to {after} KiB")


def main():
    with Daemon("--kv-cache-memory", "2600K", "--max-queue", str(QUEUE), "--max-num-seqs", str(SEQS), "--max-num-batched-tokens", "128") as d:
        limit = json.loads(d.get("/v1/models/demo")[1])["max_model_len"]
        tally.check(200 <= limit < 2048, f"the context is {limit} tokens: the cache is too large for this test")
        warm = [ask(d, i) for i in range(3)]
        d.until(lambda: d.metrics()["http_connections"] == 1)
        before = d.sample_at_rest()
        answers = at_once([lambda i=i: ask(d, i) for i in range(N)], N)
        served = refused = 0
        for answer in answers:
            if isinstance(answer, Exception):
                tally.check(False, f"a request ended with {answer!r}")
                continue
            i, status, retry, body = answer
            if status == 200:
                served += 1
                used = body["usage"]["completion_tokens"]
                tally.check(used == 60 + i % 3 * 20 and body["choices"][0]["finish_reason"] == "length", f"request {i}: {body['usage']}")
            else:
                refused += 1
                tally.check(status == 429 and retry and int(retry) > 0 and "the queue is full" in body["error"]["message"],
                            f"request {i}: {status}, Retry-After {retry}, {body}")
        preempted = d.metrics()["num_preemptions_total"]
        print(f"{N} long requests at once, a cache of {limit} tokens, {SEQS} run and {QUEUE} wait at most: {served} served, {refused} got 429, "
              f"{preempted:.0f} preemptions")
        tally.check(served >= QUEUE and refused > 0 and preempted > 0, "not what this is about")
        for i, status, _, body in warm:
            again = ask(d, i)[3]
            tally.check(status == 200 and again["choices"] == body["choices"], f"request {i} says something else afterwards")
        # One that fits in no cache, as prompt and as prompt with what it wants; and the longest one that fits.
        status, _, data = d.call("POST", "/v1/completions", {"model": "demo", "prompt": [9] * (limit + 1), "max_tokens": 1})
        print(f"a prompt of {limit + 1} tokens: {status} {data.decode()[:200]}")
        tally.check(status == 400 and b"context_length_exceeded" in data and str(limit).encode() in data, f"too long a prompt: {status} {data}")
        status, _, data = d.call("POST", "/v1/completions", {"model": "demo", "prompt": [9] * 100, "max_tokens": limit})
        tally.check(status == 400 and b"context_length_exceeded" in data, f"too long an answer: {status} {data}")
        status, _, data = d.call("POST", "/v1/completions", {"model": "demo", "prompt": [9] * (limit - 10), "max_tokens": 10, "ignore_eos": True})
        tally.check(status == 200, f"the longest one: {status} {data}")
        bodies(d)
        tally.check(d.until(lambda: d.idle() and not d.metrics()["kv_cache_usage_perc"]), f"left over: {d.metrics()}")
        d.until(lambda: d.metrics()["http_connections"] == 1)
        after = d.sample_at_rest()
        for key in ("fds", "threads"):
            tally.check(after[key] == before[key], f"{key}: {before[key]} before, {after[key]} after")
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
