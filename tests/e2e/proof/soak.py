#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# soak.py - mixed traffic for MINUTES (a third by default; the target soak: 30), then a table of what the daemon took
# while it lasted. COMPILER is txda-compile, TORTURE the program http_torture.
#
# Chats that stream, clients that leave, embeddings, structured answers, a second model that is loaded, unloaded, put to
# sleep and woken, SIGHUP, readers that do not read, broken requests. After the warm-up (a quarter of the time, 3 minutes at most) memory,
# descriptors, threads and KV blocks at rest must stay what they are, but for a stated allowance.
import os
import random
import signal
import subprocess
import threading
import time

from proof import MODEL, SANITIZED, Daemon, Tally, directory, raw_request

MINUTES = float(os.environ.get("MINUTES", "0.33"))
# KiB above the median of the warm-up's end; a sanitizer keeps what was freed.
MEMORY_ALLOWANCE = 1000000 if SANITIZED else 16384
tally = Tally()
stop = threading.Event()
done = {}
done_lock = threading.Lock()


def count(what):
    with done_lock:
        done[what] = done.get(what, 0) + 1


def expect(answer, statuses, what):
    status, body = answer
    tally.check(status in statuses, f"{what}: {status} {body}")
    count(what if status == 200 else f"{what}: {status}")


# ---- the kinds of traffic; each is a loop of its own ------------------------------------------

def chats(d, r):
    events = list(d.stream("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": f"Tell me of fox {r.randrange(50)}."}], "max_tokens": r.choice([8, 40, 200]),
        "temperature": r.choice([0, 1]), "logprobs": r.random() < 0.3}))
    tally.check(events and events[-1][1] == "[DONE]", f"chat: {events[-1:]}")
    count("chat, streamed")


def aborts(d, r):
    s = raw_request(d.path, "/v1/completions", {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True,
                                                "stream": r.random() < 0.7})
    time.sleep(r.random() * 0.2)
    if r.random() < 0.5:
        s.settimeout(0.5)
        try:
            s.recv(100)
        except OSError:
            pass
    s.close()
    count("client that leaves")


def structured(d, r):
    form = r.choice([
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}}, "required": ["name", "age"]}}}},
        {"structured_outputs": {"regex": "[a-f]{3,9}"}},
        {"structured_outputs": {"choice": ["fox", "bear", f"wolf {r.randrange(9)}"]}},
    ])
    expect(d.post("/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Give me."}], "max_tokens": 60, **form}), [200],
           "structured")


def long_prompts(d, r):
    words = " ".join(r.choice(["fox", "bear", "king", "wood", "and", "the", "went", "to"]) for _ in range(r.choice([50, 400, 1200])))
    expect(d.post("/v1/completions", {"model": "demo", "prompt": words, "max_tokens": 10, "n": r.choice([1, 1, 3]), "logprobs": 2,
                                      "echo": r.random() < 0.2}), [200], "long prompt")


def embeddings(d, r):
    expect(d.post("/v1/embeddings", {"model": "vectors", "input": [f"the fox {r.randrange(99)}", "a bear " * r.choice([1, 100])],
                                     "pooling": r.choice(["last", "mean"])}), [200], "embeddings")


# What may be answered to a model that comes and goes under one's feet.
ELSEWHERE = [200, 409, 503]


def second(d, r):
    what = r.choice(["load", "unload", "sleep", "wake", "ask", "ask"])
    if what == "ask":
        expect(d.post("/v1/completions", {"model": "second", "prompt": "Once", "max_tokens": 20}), ELSEWHERE, "second model: ask")
    else:
        body = {"model": "second"}
        if what in ("unload", "sleep"):
            body["force"] = r.random() < 0.3
        expect(d.post("/v1/models/" + what, body), ELSEWHERE, "second model: " + what)
    time.sleep(r.random() * 0.5)


def hangups(d, r):
    time.sleep(1 + r.random() * 2)
    d.process.send_signal(signal.SIGHUP)
    count("SIGHUP")


def slow_readers(d, r):
    s = raw_request(d.path, "/v1/completions", {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "stream": True,
                                                "logprobs": 5})
    stop.wait(2 + r.random() * 3)
    s.close()
    count("slow reader")


def broken(d, r):
    run = subprocess.run([os.environ["TORTURE"], d.path, "50", str(r.randrange(1 << 30))], capture_output=True, text=True, timeout=300)
    tally.check(not run.returncode, f"torture: {run.stdout}{run.stderr}")
    count("50 broken requests")
    stop.wait(1)


def probes(d, r):
    for route in ("/health", "/metrics", "/v1/models", "/v1/requests", "/v1/devices"):
        tally.check(d.get(route)[0] in (200, 503), route)
    count("probes")
    stop.wait(0.3)


KINDS = {chats: 3, aborts: 2, structured: 1, long_prompts: 1, embeddings: 1, second: 1, hangups: 1, slow_readers: 2, broken: 1, probes: 1}


def loop(kind, d, seed):
    r = random.Random(seed)
    while not stop.is_set():
        try:
            kind(d, r)
        except Exception as e:  # whatever it is, it ends this kind of traffic
            if not stop.is_set():
                tally.check(False, f"{kind.__name__}: {e!r}")
                stop.wait(1)


# ---- what the daemon takes --------------------------------------------------------------------

def take_sample(d, start):
    sample = d.sample()
    metrics = d.metrics()
    sample["kv"] = metrics.get("kv_cache_usage_perc", 0) * 100
    sample["running"] = metrics.get("num_requests_running", 0)
    sample["held"] = metrics.get("http_held_bytes", 0) / 1024
    sample["minute"] = (time.monotonic() - start) / 60
    return sample


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


COLUMNS = ["minute", "rss", "pss", "fds", "threads", "kv", "running", "held"]


def table(samples):
    print("  minute   RSS KiB   PSS KiB   fds threads   KV %  running  held KiB")
    step = max(1, len(samples) // 20)
    for s in samples[::step]:
        print("{:8.1f} {:9d} {:9d} {:5d} {:7d} {:6.1f} {:8.0f} {:9.0f}".format(*(s[c] for c in COLUMNS)))


def judge(samples, rest_warm, rest_end):
    """Under load: the last quarter against the second. At rest: the end against the warm daemon."""
    n = len(samples)
    early, late = samples[n // 4:n // 2], samples[3 * n // 4:]
    for key, allowance in (("rss", MEMORY_ALLOWANCE), ("pss", MEMORY_ALLOWANCE)):
        a, b = median([s[key] for s in early]), median([s[key] for s in late])
        print(f"{key} under load: median {a} KiB in the second quarter, {b} in the last: {b - a:+d}, allowed {allowance:+d}")
        tally.check(b - a <= allowance, f"{key} grew from {a} to {b} KiB")
    for key, allowance in (("rss", MEMORY_ALLOWANCE), ("fds", 2), ("threads", 0)):
        print(f"{key} at rest: {rest_warm[key]} after the warm-up, {rest_end[key]} at the end, allowed {allowance:+d}")
        tally.check(rest_end[key] - rest_warm[key] <= allowance, f"{key} at rest grew from {rest_warm[key]} to {rest_end[key]}")
    tally.check(rest_end["kv"] == 0, f"KV blocks are in use at rest: {rest_end['kv']} %")


def requests_hold(d):
    """Bytes, but for what is kept for later ones."""
    metrics = d.metrics()
    return metrics["http_held_bytes"] - metrics["http_kept_bytes"]


def at_rest(d, start):
    """Without traffic, and with the second model where it always is at rest."""
    tally.check(d.until(lambda: d.idle() and requests_hold(d) < 4096, 60), f"it does not come to rest: {d.get('/v1/requests')}")
    d.post("/v1/models/load", {"model": "second"})
    d.until(lambda: d.metrics()["http_connections"] <= 1, 60)
    time.sleep(2.5)  # once a second it gives memory back
    return take_sample(d, start)


def traffic(d, seconds, samples, start):
    stop.clear()
    crew = [threading.Thread(target=loop, args=(kind, d, i * 100 + k + len(samples)), daemon=True) for i, (kind, n) in enumerate(KINDS.items())
            for k in range(n)]
    for thread in crew:
        thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and d.process.poll() is None:
        time.sleep(min(5, seconds / 12))
        samples.append(take_sample(d, start))
    stop.set()
    for thread in crew:
        thread.join(120)
        tally.check(not thread.is_alive(), "a client hangs")


def main():
    with directory() as where:
        vectors = where + "/vectors"
        subprocess.run([os.environ["COMPILER"], "-q", os.environ["DRAFT"], "-o", vectors, "--hidden", "--max-context", "512"], check=True)
        conf = where + "/conf"
        with open(conf, "w") as f:
            f.write(f"model = demo={MODEL}\nkv-cache-memory = 8M\nmodel = vectors={vectors}\nmodel = second={os.environ['DRAFT']}\n"
                    "log-level = warning\nno-access-log\nspeculative = ngram\n")
        with Daemon("--config", conf, directory=where, model=False, env={"TXDA_CMODEL": "chips=1,mem=256M"}) as d:
            start = time.monotonic()
            warm, samples = [], []
            traffic(d, min(MINUTES * 60 / 4, 180), warm, start)
            rest_warm = at_rest(d, start)
            traffic(d, MINUTES * 60, samples, start)
            tally.check(d.process.poll() is None, f"the daemon ended: {d.process.returncode}")
            rest_end = at_rest(d, start)
            table(samples)
            judge(samples, rest_warm, rest_end)
            print("what was done:", ", ".join(f"{k} {v}" for k, v in sorted(done.items())))
            for kind, words in (("chat, streamed", "chats"), ("embeddings", "embeddings"), ("structured", "structured answers"),
                                ("SIGHUP", "SIGHUP"), ("slow reader", "slow readers"), ("50 broken requests", "broken requests")):
                tally.check(done.get(kind), f"there were no {words}")
            tally.check(d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3})[0] == 200, "it does not serve at the end")
            tally.check(d.stop() == 0, "exit status at the end")
    tally.conclude()


if __name__ == "__main__":
    main()
