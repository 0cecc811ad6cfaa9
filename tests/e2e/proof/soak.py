#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# soak.py - mixed traffic for MINUTES (a third by default; the target soak: 30), with a table of
# what the daemon took while it lasted.
#
# Chats that stream, clients that leave, embeddings, structured answers, a second model that is
# loaded, unloaded, put to sleep and woken, SIGHUP, readers that do not read, broken requests. After
# the warm-up (a quarter of the time, 3 minutes at most) memory, descriptors, threads and KV blocks
# at rest must stay what they are, but for a stated allowance.
import os
import random
import signal
import subprocess
import sys
import threading
import time

from daemon import MODEL, SANITIZED, Daemon, check, conclude, directory, raw_request, until

MINUTES = float(os.environ.get("MINUTES", "0.33"))
TORTURE = os.path.dirname(os.path.abspath(__file__)) + "/../torture.py"
# Beyond the warm daemon's: KiB, which a sanitizer keeps of what was freed, descriptors, threads.
ALLOWED = {"rss": 1000000 if SANITIZED else 16384, "fds": 2, "threads": 0}
# What may be answered to a model that comes and goes under one's feet.
ELSEWHERE = [200, 409, 503]
stop = threading.Event()
done = {}
done_lock = threading.Lock()


def count(what):
    with done_lock:
        done[what] = done.get(what, 0) + 1


def expect(answer, statuses):
    check(answer[0] in statuses, answer)


# ---- the kinds of traffic; each is a loop of its own ------------------------------------------

def chats(d, r):
    events = list(d.stream("/v1/chat/completions", {
        "model": "demo", "messages": [{"role": "user", "content": f"Tell me of fox {r.randrange(50)}."}],
        "max_tokens": r.choice([8, 40, 200]),
        "temperature": r.choice([0, 1]), "logprobs": r.random() < 0.3}))
    check(events and events[-1] == "[DONE]", f"chat: {events[-1:]}")


def aborts(d, r):
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True,
            "stream": r.random() < 0.7}
    s = raw_request(d.path, "/v1/completions", body)
    if body["stream"] and r.random() < 0.5:
        s.recv(100)
    s.close()


def structured(d, r):
    form = r.choice([
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {
            "type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
            "required": ["name", "age"]}}}},
        {"structured_outputs": {"regex": "[a-f]{3,9}"}},
        {"structured_outputs": {"choice": ["fox", "bear", f"wolf {r.randrange(9)}"]}},
    ])
    body = {"model": "demo", "messages": [{"role": "user", "content": "Give me."}], "max_tokens": 60, **form}
    expect(d.post("/v1/chat/completions", body), [200])


def long_prompts(d, r):
    words = " ".join(r.choice(["fox", "bear", "king", "wood", "and", "the", "went", "to"])
                     for _ in range(r.choice([50, 400, 1200])))
    expect(d.post("/v1/completions", {"model": "demo", "prompt": words, "max_tokens": 10, "n": r.choice([1, 1, 3]),
                                      "logprobs": 2,
                                      "echo": r.random() < 0.2}), [200])


def embeddings(d, r):
    expect(d.post("/v1/embeddings", {"model": "vectors", "input": [f"the fox {r.randrange(99)}",
                                                                   "a bear " * r.choice([1, 100])],
                                     "pooling": r.choice(["last", "mean"])}), [200])


def second(d, r):
    what = r.choice(["load", "unload", "sleep", "wake", "ask", "ask"])
    if what == "ask":
        expect(d.post("/v1/completions", {"model": "second", "prompt": "Once", "max_tokens": 20}), ELSEWHERE)
    else:
        more = {"force": r.random() < 0.3} if what in ("unload", "sleep") else {}
        expect(d.post("/v1/models/" + what, {"model": "second", **more}), ELSEWHERE)


def hangups(d, r):
    d.process.send_signal(signal.SIGHUP)
    stop.wait(1 + r.random() * 2)


def slow_readers(d, r):
    s = raw_request(d.path, "/v1/completions", {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900,
                                                "ignore_eos": True, "stream": True,
                                                "logprobs": 5})
    stop.wait(2 + r.random() * 3)
    s.close()


def broken(d, r):
    run = subprocess.run([sys.executable, TORTURE, d.path, "50", str(r.randrange(1 << 30))], capture_output=True,
                         text=True, timeout=300)
    check(not run.returncode, f"torture: {run.stdout}{run.stderr}")


def probes(d, r):
    for route in ("/health", "/metrics", "/v1/models", "/v1/requests", "/v1/devices"):
        expect(d.get(route), (200, 503))
    stop.wait(0.3)


KINDS = {chats: 3, aborts: 2, structured: 1, long_prompts: 1, embeddings: 1, second: 1, hangups: 1, slow_readers: 2,
         broken: 1, probes: 1}


def loop(kind, d, seed):
    r = random.Random(seed)
    while not stop.is_set():
        try:
            kind(d, r)
            count(kind.__name__)
        except Exception as e:  # whatever it is, it ends this kind of traffic
            if not stop.is_set():
                check(False, f"{kind.__name__}: {e!r}")
                stop.wait(1)


def traffic(d, seconds):
    stop.clear()
    crew = [threading.Thread(target=loop, args=(kind, d, i * 100 + k), daemon=True) for i,
            (kind, n) in enumerate(KINDS.items()) for k in range(n)]
    for thread in crew:
        thread.start()
    start = time.monotonic()
    while time.monotonic() < start + seconds and d.process.poll() is None:
        m = d.metrics()
        print("minute {:5.1f}: {rss} KiB resident, {pss} its own, {fds} descriptors, {threads} threads".format(
            (time.monotonic() - start) / 60, **d.sample()),
            f"KV {m['kv_cache_usage_perc']:.0%}, {m['num_requests_running']:.0f} run,",
            f"{m['http_held_bytes'] / 1024:.0f} KiB held", flush=True)
        time.sleep(max(0.5, seconds / 20))
    stop.set()
    for thread in crew:
        thread.join(120)
        check(not thread.is_alive(), "a client hangs")


def at_rest(d):
    """Without traffic, and with the second model where it always is at rest."""
    check(until(lambda: d.idle() and d.held() < 4096 and not d.metrics()["kv_cache_usage_perc"]),
          f"it does not come to rest: {d.get('/v1/requests')}")
    d.post("/v1/models/load", {"model": "second"})
    return d.sample_at_rest()


def main():
    with directory() as where:
        vectors = where + "/vectors"
        subprocess.run([os.environ["TXDA_COMPILE"], "-q", os.environ["DRAFT"], "-o", vectors, "--hidden",
                        "--max-context", "512"], check=True)
        conf = where + "/conf"
        with open(conf, "w") as f:
            f.write(f"model = demo={MODEL}\nkv-cache-memory = 8M\nmodel = vectors={vectors}\nmodel = second={os.environ['DRAFT']}\n"
                    "log-level = warning\nno-access-log\nspeculative = ngram\n")
        with Daemon("--config", conf, directory=where, model=False, env={"TXDA_CMODEL": "chips=1,mem=256M"}) as d:
            traffic(d, min(MINUTES * 60 / 4, 180))
            warm = at_rest(d)
            traffic(d, MINUTES * 60)
            check(d.process.poll() is None, f"the daemon ended: {d.process.returncode}")
            end = at_rest(d)
            end["rss"] = d.rss_below(warm["rss"] + ALLOWED["rss"])
            for key, allowed in ALLOWED.items():
                print(f"{key} at rest: {warm[key]} after the warm-up, {end[key]} at the end, allowed {allowed:+d}")
                check(end[key] - warm[key] <= allowed, f"{key} at rest grew from {warm[key]} to {end[key]}")
            print("what was done:", ", ".join(f"{k} {v}" for k, v in sorted(done.items())))
            for kind in KINDS:
                check(done.get(kind.__name__), f"there were no {kind.__name__}")
            expect(d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3}), [200])
    conclude()


main()
