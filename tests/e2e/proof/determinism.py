#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# determinism.py - a mixed workload whose requests run all at once, in random order, on daemons with
# few KV blocks and small steps, with and without speculation, before and after a kill -9: every
# answer, log probabilities included, must be the one of the same request alone on a fresh daemon.
# 40 requests, of which some get a fresh daemon each; in full 200 and all.
import copy
import json
import os
import random

from daemon import Daemon, at_once, check, conclude, size, until

N = size(40, 200)
STEP_TOKENS = 96
# Room for the longest request and not for much more, so that requests are preempted.
CROWDED = ["--kv-cache-memory", "2600K", "--max-num-batched-tokens", str(STEP_TOKENS), "--max-num-seqs", "24"]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
          "required": ["name", "age"]}


def text(r, words):
    return " ".join(r.choice(["fox", "bear", "king", "wood", "and", "the", "went", "to", "old", "house", "said"])
                    for _ in range(words))


def workload():
    """[(route, body)], the same each time."""
    r = random.Random(4)
    shared = text(r, 150)
    made = []
    for i in range(N):
        sampled = {"temperature": r.choice([0.7, 1, 1.5]), "seed": r.randrange(1 << 60), "top_p": r.choice([1, 0.9]),
                   "top_k": r.choice([0, 40]),
                   "min_p": r.choice([0, 0.02])}
        greedy = {"temperature": 0}
        how = sampled if i % 2 else greedy
        length = r.choice([12, 30, 80])
        completion = {"max_tokens": length, "logprobs": r.choice([1, 5]), "ignore_eos": r.random() < 0.5, **how}
        chat = {"messages": [{"role": "user", "content": f"Tell me of {text(r, 3)}."}], "max_tokens": length,
                "logprobs": True, "top_logprobs": 3, **how}
        kind = i % 10
        if kind == 0:
            made.append(("/v1/chat/completions", chat))
        elif kind == 1:
            made.append(("/v1/completions", {"prompt": f"Once upon a time there was {text(r, 4)}", **completion}))
        elif kind == 2:
            made.append(("/v1/completions", {"prompt": text(r, r.choice([150, 300])), **completion}))
        elif kind in (3, 4):
            made.append(("/v1/completions", {"prompt": shared + f" {text(r, 5)}", **completion}))
        elif kind == 5:
            many = r.choice([{"n": 3}, {"n": 2, "best_of": 4},
                             {"use_beam_search": True, "beam_width": 3, "n": 2, "temperature": 0}])
            made.append(("/v1/completions", {"prompt": f"In a wood {text(r, 3)}", **completion, **many}))
        elif kind == 6:
            form = r.choice([{"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
                             {"structured_outputs": {"regex": "[a-f ]{5,20}"}},
                             {"response_format": {"type": "json_object"}}])
            made.append(("/v1/chat/completions", {**chat, **form}))
        elif kind == 7:
            made.append(("/v1/completions", {"prompt": "The old king said: The old king said:", **completion,
                                             "repetition_penalty": 1.2,
                                             "presence_penalty": 0.5, "frequency_penalty": 0.3,
                                             "logit_bias": {"300": 2, "17": -100}}))
        elif kind == 8:
            made.append(("/v1/completions", {"prompt": text(r, 60), **completion, "echo": True, "stop": ["\n\n", "fox"]}))
        else:
            # Greedy and with itself as its prompt: speculation finds much.
            made.append(("/v1/completions", {"prompt": (text(r, 12) + ". ") * 6, **completion, **greedy,
                                             "max_tokens": 80, "ignore_eos": True}))
    return made


def essence(status, answer):
    """What must be equal: all but the id, the time, and what was found in the prefix cache."""
    if status != 200:
        return {"status": status, **answer}
    answer = copy.deepcopy(answer)
    del answer["id"], answer["created"]
    answer["usage"].pop("prompt_tokens_details", None)
    return answer


def ask(d, request):
    return essence(*d.post(request[0], {"model": "demo", **request[1]}))


def alone(requests):
    """Each by itself: on one roomy daemon without a prefix cache, and then on a fresh daemon each (in short: some)."""
    with Daemon("--no-enable-prefix-caching") as d:
        answers = [ask(d, request) for request in requests]
    for i in range(0, N, size(10, 1)):
        with Daemon() as d:
            fresh = ask(d, requests[i])
            check(fresh == answers[i], f"request {i} on a fresh daemon: {difference(answers[i], fresh)}")
    for i, answer in enumerate(answers):
        check("choices" in answer and "error" not in answer, f"request {i}: {answer}")
    return answers


def difference(wanted, got):
    wanted, got = json.dumps(wanted), json.dumps(got)
    at = next((i for i, (a, b) in enumerate(zip(wanted, got)) if a != b), min(len(wanted), len(got)))
    return f"at {at}: ...{wanted[max(0, at - 60):at + 60]!r} against ...{got[max(0, at - 60):at + 60]!r}"


def crowd(d, requests, wanted, seed, name):
    """All at once in another order; what the daemon did meanwhile."""
    order = list(range(N))
    random.Random(seed).shuffle(order)
    answers = at_once([lambda i=i: ask(d, requests[i]) for i in order], 64)
    wrong = 0
    for i, answer in zip(order, answers):
        if isinstance(answer, Exception):
            check(False, f"{name}, request {i}: {answer!r}")
        elif answer != wanted[i]:
            wrong += 1
            check(False, f"{name}, request {i} {json.dumps(requests[i])[:200]}: {difference(wanted[i], answer)}")
    m = d.metrics()
    did = {"preemptions": m["num_preemptions_total"], "prefix hits": m["prefix_cache_hits_total"],
           "accepted proposals": m["spec_decode_num_accepted_tokens_total"], "steps": m["engine_steps_total"],
           "prompt tokens": m["prompt_tokens_total"], "generated": m["generation_tokens_total"]}
    print(f"{name}: {N - wrong} of {N} equal; " + ", ".join(f"{k} {v:.0f}" for k, v in did.items()), flush=True)
    return did


def main():
    requests = workload()
    wanted = alone(requests)
    chunked = sum(a["usage"]["prompt_tokens"] > STEP_TOKENS for a in wanted)
    print(f"alone: {N} requests, {sum(a['usage']['completion_tokens'] for a in wanted)} tokens; prompts longer than a step: {chunked}")
    check(chunked >= N // 10, "too few prompts need more than one step")
    ways = {"plain": [], "n-gram": ["--speculative", "ngram", "--speculative-max-seqs", "24"],
            "draft model": ["--draft-model", os.environ["DRAFT"], "--speculative-max-seqs", "24"]}
    for way, options in ways.items():
        with Daemon(*CROWDED, *options) as d:
            did = crowd(d, requests, wanted, 1, way)
            check(did["preemptions"] > 0, f"{way}: nothing was preempted")
            check(did["prefix hits"] > 0, f"{way}: nothing was found in the prefix cache")
            check((did["accepted proposals"] > 0) == (way != "plain"),
                  f"{way}: {did['accepted proposals']} accepted proposals")
            if way == "plain":
                crowd(d, requests, wanted, 2, "again, with a warm prefix cache")
                d.kill()
                d.start()
                crowd(d, requests, wanted, 3, "after kill -9 and a restart")
            check(until(lambda d=d: d.idle() and not d.metrics()["kv_cache_usage_perc"]), f"{way}: not idle after all")
    conclude()


main()
