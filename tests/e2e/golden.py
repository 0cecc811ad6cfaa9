#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# golden.py [OPTION...] - the golden fixtures through the daemon: log probabilities of
# prompts and of greedy continuations, asked for over its socket, against the reference's logits.
#
# A log probability may differ by what errors of 1.5e-2 of a row's length make of one logit and of
# the sum: six times that length over the root of the vocabulary; so may one of 20 do more, where a
# router near a tie takes another expert. With --kv-cache-dtype int8 it may be four times that.
#
# One of them is there as a GGUF file, too, and a chat is the same tokens for both.
import math
import os
import sys

import gguf
from daemon import Daemon, check, conclude, directory, log_probability, numbers, read_tensors

FIXTURES = ["llama2", "llama31", "qwen2-sharded", "qwen3", "internlm3", "llama-gptq", "qwen2-awq", "qwen2-gptq-asym-act",
            "qwen3-fp8", "qwen2moe", "qwen3moe", "deepseek3", "gemma2", "gemma3", "gptoss", "deepseek32",
            "glm4moe-mtp", "qwen3next"]

AS_GGUF = "llama31"


def check_case(d, model, golden, i, error):
    """Pairs of what a log probability differs by and what it may."""
    ids, greedy, last, at, rows = (numbers(golden[f"case{i}.{name}"]) for name in ("ids", "greedy", "last", "at", "rows"))
    vocab = len(last)
    status, answer = d.post("/v1/completions", {
        "model": model, "prompt": ids, "max_tokens": len(greedy), "temperature": 0, "ignore_eos": True, "logprobs": 1,
        "echo": True})
    if not check(status == 200, f"{model}: {status} {answer}"):
        return []
    got = answer["choices"][0]["logprobs"]["token_logprobs"]

    def pair(row, position, token):
        length = math.sqrt(sum(x * x for x in row) / vocab)
        return abs(got[position] - log_probability(row, token)), 6 * error * length
    found = [pair(rows[k * vocab:(k + 1) * vocab], p + 1, ids[p + 1]) for k, p in enumerate(at) if p + 1 < len(ids)]
    return found + [pair(last, len(ids), greedy[0])]


def as_gguf(where, fixture):
    """The models served of files of it: as caches of the hub have them, links to files that are called otherwise."""
    gguf.from_fixture(fixture, "bf16", where + "/blob")
    os.symlink("blob", where + "/model.gguf")
    # The other parts are beside the link, not beside what it leads to.
    gguf.from_fixture(fixture, "bf16", where + "/x", files=2)
    for part in (1, 2):
        os.mkdir(f"{where}/{part}")
        os.rename(f"{where}/x-0000{part}-of-00002.gguf", f"{where}/{part}/blob")
        os.symlink(f"{part}/blob", f"{where}/parts-0000{part}-of-00002.gguf")
    return ["--model", f"gguf={where}/model.gguf", "--model", f"parts={where}/parts-00002-of-00002.gguf"]


def check_models(fixtures, names, options):
    """Models served by one daemon."""
    error = 6e-2 if "int8" in options else 1.5e-2
    with directory() as where:
        for name in names:
            options = options + ["--model", f"{name}={fixtures}/{name}"]
        origins = {name: name for name in names}
        if AS_GGUF in names:
            options += as_gguf(where, f"{fixtures}/{AS_GGUF}")
            origins.update(gguf=AS_GGUF, parts=AS_GGUF)
        with Daemon("--cache-dir", where + "/cache", *options, model=False) as d:
            for name, origin in origins.items():
                metadata, golden = read_tensors(f"{fixtures}/{origin}/golden.safetensors")
                found = [pair for i in range(int(metadata["cases"])) for pair in check_case(d, name, golden, i, error)]
                beyond = sum(difference > limit for difference, limit in found)
                routed = "moe" in name or "deepseek" in name or name in ("gptoss", "qwen3next")
                check(beyond <= (len(found) // 20 if routed else 0),
                      f"{name}: of {len(found)} log probabilities {beyond} differ by more "
                      f"than they may, {max(difference for difference, _ in found):.1e} at most")
            with open(fixtures + "/../models/heldout.txt") as f:
                chat = [{"role": "user", "content": "Hello, 12 w\u00f6rlds<|im_end|>" + f.read()[:20000]}]
            for name in set(origins) - set(names):
                check(d.tokens(name, chat) == d.tokens(AS_GGUF, chat) != None,
                      f"a chat with the GGUF file, {name}: other tokens")


def main():
    # A group of chips runs 16 models at once.
    for i in range(2):
        check_models(os.environ["FIXTURES"], FIXTURES[i::2], sys.argv[1:])
    conclude()


main()
