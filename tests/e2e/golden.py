#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# golden.py TXDAD FIXTURES [OPTION...] - the golden fixtures through the daemon: log probabilities of
# prompts and of greedy continuations, asked for over its socket, against the reference's logits.
#
# A log probability may differ by what errors of 1.5e-2 of a row's length make of one logit and of
# the sum: six times that length over the root of the vocabulary; so may one of 20 do more, where a
# router near a tie takes another expert. With --kv-cache-dtype int8 it may be four times that.
#
# One of them is there as a GGUF file, too, and a chat is the same tokens for both.
import http.client
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

import gguf

FIXTURES = ["llama2", "llama31", "qwen2-sharded", "qwen3", "internlm3", "llama-gptq", "qwen2-awq", "qwen2-gptq-asym-act",
            "qwen3-fp8", "qwen2moe", "qwen3moe", "deepseek3", "gemma2", "gemma3", "gptoss", "deepseek32", "glm4moe-mtp", "qwen3next"]

AS_GGUF = "llama31"


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(self.path)


def ask(path, method, route, body=None):
    c = Connection(path)
    c.request(method, route, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, json.loads(data)


def read_golden(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    tensors = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        values = struct.unpack("<%d%s" % ((b - a) // 4, "i" if t["dtype"] == "I32" else "f"), data[a:b])
        tensors[name] = values if len(t["shape"]) < 2 else [values[i:i + t["shape"][1]] for i in
                                                            range(0, len(values), t["shape"][1])]
    return int(header["__metadata__"]["cases"]), tensors


def log_probability(row, token):
    top = max(row)
    return row[token] - top - math.log(sum(math.exp(x - top) for x in row))


def check_case(path, model, golden, i, error):
    """Pairs of what a log probability differs by and what it may."""
    def part(name):
        return golden[f"case{i}.{name}"]
    ids, greedy, vocab = list(part("ids")), part("greedy"), len(part("last"))
    status, answer = ask(path, "POST", "/v1/completions", {
        "model": model, "prompt": ids, "max_tokens": len(greedy), "temperature": 0, "ignore_eos": True, "logprobs": 1,
        "echo": True})
    if status != 200:
        raise SystemExit(f"{model}: {status} {answer}")
    got = answer["choices"][0]["logprobs"]["token_logprobs"]
    found = []
    for row, at in zip(part("rows"), part("at")):
        if at + 1 < len(ids):
            length = math.sqrt(sum(x * x for x in row) / vocab)
            found.append((abs(got[at + 1] - log_probability(row, ids[at + 1])), 6 * error * length))
    row = part("last")
    length = math.sqrt(sum(x * x for x in row) / vocab)
    found.append((abs(got[len(ids)] - log_probability(row, greedy[0])), 6 * error * length))
    return found


def chat(path, model):
    """The tokens of a chat: template and tokeniser."""
    status, answer = ask(path, "POST", "/tokenize", {
        "model": model, "messages": [{"role": "user", "content": "Hello, 12 w\u00f6rlds<|im_end|>"}]})
    if status != 200:
        raise SystemExit(f"{model}: {status} {answer}")
    return answer["tokens"]


def wait_until_healthy(path, daemon):
    for _ in range(1200):
        try:
            if ask(path, "GET", "/health")[0] == 200:
                return
        except OSError:
            pass
        if daemon.poll() is not None:
            return
        time.sleep(0.1)
    print("the daemon did not become healthy")


def check_models(txdad, fixtures, names, options):
    """How many of the models, served by one daemon, differ too much."""
    int8 = "int8" in options
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        path = directory + "/socket"
        command = [txdad, "--socket", path, "--cache-dir", directory + "/cache"] + options
        for name in names:
            command += ["--model", f"{name}={fixtures}/{name}"]
        fixture = {name: name for name in names}
        if AS_GGUF in names:
            # As caches of the hub have it: a link to a file that is called otherwise.
            gguf.from_fixture(f"{fixtures}/{AS_GGUF}", "bf16", directory + "/blob")
            os.symlink("blob", directory + "/model.gguf")
            command += ["--model", f"gguf={directory}/model.gguf"]
            fixture["gguf"] = AS_GGUF
            # The other parts are beside the link, not beside what it leads to.
            gguf.from_fixture(f"{fixtures}/{AS_GGUF}", "bf16", directory + "/x", files=2)
            for part in (1, 2):
                os.mkdir(f"{directory}/{part}")
                os.rename(f"{directory}/x-0000{part}-of-00002.gguf", f"{directory}/{part}/blob")
                os.symlink(f"{part}/blob", f"{directory}/parts-0000{part}-of-00002.gguf")
            command += ["--model", f"parts={directory}/parts-00002-of-00002.gguf"]
        log = open(directory + "/log", "w+")
        daemon = subprocess.Popen(command, stderr=log, env={**os.environ, "TXDA_BACKEND": "cmodel"})
        try:
            wait_until_healthy(path, daemon)
            for name, origin in fixture.items():
                cases, golden = read_golden(f"{fixtures}/{origin}/golden.safetensors")
                found = [pair for i in range(cases) for pair in check_case(path, name, golden, i, 6e-2 if int8 else 1.5e-2)]
                beyond = sum(difference > limit for difference, limit in found)
                routed = "moe" in name or "deepseek" in name or name in ("gptoss", "qwen3next")
                bad = beyond > (len(found) // 20 if routed else 0)
                failed += bad
                print(f"{name}: {len(found)} log probabilities differ by {max(d for d, _ in found):.1e} at most, "
                      f"{beyond} by more than they may: {'FAIL' if bad else 'ok'}")
            for name in ("gguf", "parts") if "gguf" in fixture else ():
                if chat(path, name) != chat(path, AS_GGUF):
                    failed += 1
                    print(f"a chat with the GGUF file, {name}: FAIL, other tokens")
        finally:
            daemon.terminate()
            daemon.wait()
            if failed or daemon.returncode:
                log.seek(0)
                print(log.read())
    return failed


def main():
    txdad, fixtures, options = sys.argv[1], sys.argv[2], sys.argv[3:]
    # A group of chips runs 16 models at once.
    failed = sum(check_models(txdad, fixtures, FIXTURES[i::2], options) for i in range(2))
    print(f"{len(FIXTURES) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
