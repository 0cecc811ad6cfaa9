#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# overload.py - many long requests on few KV blocks and a short queue: they wait, are preempted, and all
# end with what they say alone; what the queue does not hold gets 429 with Retry-After; what no cache
# could ever hold gets 400; bodies of megabytes that are refused leave nothing behind.
import json

from daemon import SANITIZED, Daemon, at_once, check, conclude, size, until

N = size(60, 400)
QUEUE, SEQS = 24, 12
BODY = 4 << 20
# KiB that may stay of bodies that were refused.
MEMORY_ALLOWANCE = 1000000 if SANITIZED else 8192


def ask(d, i):
    status, headers, data = d.call("POST", "/v1/completions", {
        "model": "demo", "prompt": [10 + i % 50] * (100 + i * 7 % 200), "max_tokens": 60 + i % 3 * 20, "ignore_eos": True,
        "temperature": 0, "logprobs": 1})
    return status, headers.get("Retry-After"), json.loads(data)


def crowd(d):
    """All at once, then those that were served one after the other."""
    answers = at_once([lambda i=i: ask(d, i) for i in range(N)], N)
    served = []
    for i, answer in enumerate(answers):
        if not check(not isinstance(answer, Exception), f"request {i} ended with {answer!r}"):
            continue
        status, retry, body = answer
        if status == 200:
            served.append(i)
            check(body["usage"]["completion_tokens"] == 60 + i % 3 * 20 and body["choices"][0]["finish_reason"] == "length",
                  f"request {i}: {body['usage']}")
        else:
            check(status == 429 and retry and int(retry) > 0 and "the queue is full" in body["error"]["message"],
                  f"request {i}: {status}, Retry-After {retry}, {body}")
    preempted = d.metric("num_preemptions_total")
    print(f"{N} long requests at once, {SEQS} run and {QUEUE} wait at most: {len(served)} served, {preempted:.0f} preemptions")
    check(QUEUE <= len(served) < N and preempted > 0, "not what this is about")
    for i in served:
        status, _, body = ask(d, i)
        check(status == 200 and body["choices"] == answers[i][2]["choices"], f"request {i} says something else alone: {body}")
    check(d.metric("num_preemptions_total") == preempted, "one alone was preempted")


def limits(d, limit):
    """What fits in no cache, as prompt and as prompt with what it wants; and the longest one that fits."""
    for prompt, tokens, want in ((limit + 1, 1, 400), (100, limit, 400), (limit - 9, 10, 400), (limit - 10, 10, 200)):
        status, _, data = d.call("POST", "/v1/completions", {"model": "demo", "prompt": [9] * prompt, "max_tokens": tokens,
                                                             "ignore_eos": True})
        check(status == want, f"{tokens} tokens behind {prompt} with room for {limit}: {status} {data}")
        check(status == 200 or b"context_length_exceeded" in data and str(limit).encode() in data, data)


def bodies(d):
    """Texts as long as a body may be, each longer than the context: they are read, parsed and refused."""
    text = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "a fox and " * (BODY // 10 - 100)}]}).encode()
    before = d.sample()["rss"]
    answers = at_once([lambda: d.call("POST", "/v1/chat/completions", text)[0]] * 8, 4)
    check(answers == [400] * 8, f"texts of {len(text)} bytes: {answers}")
    after = d.rss_below(before + MEMORY_ALLOWANCE)
    check(after - before <= MEMORY_ALLOWANCE, f"8 texts of {len(text)} bytes: memory grew from {before} to {after} KiB")


def main():
    with Daemon("--kv-cache-memory", "2600K", "--max-queue", str(QUEUE), "--max-num-seqs", str(SEQS),
                "--max-num-batched-tokens", "128") as d:
        limit = json.loads(d.get("/v1/models/demo")[1])["max_model_len"]
        check(200 <= limit < 2048, f"the context is {limit} tokens: the cache is too large for this test")
        ask(d, 0)
        before = d.sample_at_rest()
        crowd(d)
        limits(d, limit)
        bodies(d)
        check(until(lambda: d.idle() and not d.metric("kv_cache_usage_perc")), f"left over: {d.metrics()}")
        after = d.sample_at_rest()
        for key in ("fds", "threads"):
            check(after[key] == before[key], f"{key}: {before[key]} before, {after[key]} after")
    conclude()


main()
