#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# kill.py - kill -9 of clients in the middle of their answers (100, in full 1000), of the daemon in the middle of a load, a
# compile included, and in the middle of generation: nothing stays behind, and what comes after is as if it had not been.
import fcntl
import os
import random
import signal
import sys
import time

from proof import SANITIZED, Daemon, Tally, at_once, directory, raw_request, size

# KiB: what the allocator keeps of a crowd of 50.
MEMORY_ALLOWANCE = 1000000 if SANITIZED else 8192
WAVE = 50
FOREVER = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True}
tally = Tally()


def kill_and_reap(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def client(path, body):
    """A process that asks and reads until it is killed; its pid once it has its first bytes, or has asked if it does not stream."""
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            s = raw_request(path, "/v1/completions", body)
            if body["stream"]:
                s.recv(1)
            os.write(tell, b"x")
            while s.recv(65536):
                pass
            signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    return pid, told


def kill_clients(d, r, wave):
    crew = [client(d.path, {**FOREVER, "stream": i % 4 != 0, "seed": i}) for i in range(wave)]
    for pid, told in crew:
        if not os.read(told, 1):
            tally.check(False, "a client ended by itself")
        os.close(told)
    running = d.metrics()["num_requests_running"]
    r.shuffle(crew)
    for pid, _ in crew:
        kill_and_reap(pid)
    return running


def nothing_left(d):
    m = d.metrics()
    return not (m["num_requests_running"] or m["num_requests_waiting"] or m["kv_cache_usage_perc"]) and m["http_connections"] == 1


def clients():
    r = random.Random(2)
    with Daemon("--kv-cache-memory", "32M") as d:
        d.warm_up()
        wanted = d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30, "seed": 3})[1]["choices"]
        kill_clients(d, r, WAVE)  # warming up
        tally.check(d.until(lambda: nothing_left(d)), "after the first wave something is left")
        time.sleep(2)
        before, most = d.sample_at_rest(), 0
        for _ in range(size(100, 1000) // WAVE):
            most = max(most, kill_clients(d, r, WAVE))
        tally.check(d.until(lambda: nothing_left(d)), f"clients are dead, and there is left {d.get('/v1/requests')} {d.metrics()}")
        d.rss_below(before["rss"] + MEMORY_ALLOWANCE)
        after = d.sample_at_rest()
        aborted = d.metrics()['request_success_total{finished_reason="abort"}']
        print(f"{size(100, 1000)} clients killed, {most:.0f} ran at once, {aborted:.0f} aborts counted; before {before}, after {after}")
        tally.check(most > WAVE // 2, f"only {most} ran at once")
        tally.check(aborted == size(100, 1000) + WAVE, f"{aborted} aborts counted")
        tally.check(after["rss"] - before["rss"] <= MEMORY_ALLOWANCE, f"memory grew from {before['rss']} to {after['rss']} KiB")
        for key in ("fds", "threads"):
            tally.check(after[key] == before[key], f"{key}: {before[key]} before, {after[key]} after")
        again = d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30, "seed": 3})[1]["choices"]
        tally.check(again == wanted, f"afterwards it says {again}, not {wanted}")


def state_of(pid):
    """As /proc says: "T" is stopped, "Z" ended, "" gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def compilers(cache):
    """Processes that compile into that cache."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"txda-compile") and any(w.startswith(cache.encode()) for w in words) and state_of(pid) not in ("Z", ""):
            found.append(int(pid))
    return found


def wait_for_compilers(cache, seconds=120):
    """Until those of daemons that were killed are through."""
    end = time.monotonic() + seconds
    while compilers(cache):
        if time.monotonic() > end:
            raise SystemExit("FAIL: a compiler goes on for ever")
        time.sleep(0.02)


def half_done(cache):
    """What the daemon has a compiler work in, and the case dir in the making there."""
    works = [name for name in os.listdir(cache) if name.endswith(".txda-new")] if os.path.isdir(cache) else []
    return [os.path.join(name, ".case.txda-new") for name in works]


def send(pid, number):
    """Whether the process was there to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stop_when(pid, condition):
    """Lets the process run until that is true, and stops it; whether it is stopped and it still is true."""
    send(pid, signal.SIGCONT)
    while not condition() and state_of(pid) not in ("Z", ""):
        pass
    send(pid, signal.SIGSTOP)
    while state_of(pid) not in ("T", "Z", ""):
        pass
    return state_of(pid) == "T" and bool(condition())


def start_again(cache, where, name):
    """Moves out of the way what was compiled."""
    for entry in os.listdir(cache) if os.path.isdir(cache) else []:
        if not entry.startswith("."):
            os.rename(os.path.join(cache, entry), os.path.join(where, name))


def while_it_compiles(cache, where, r, name):
    """A daemon whose compiler is stopped with half a case dir in the cache, at its beginning or further on; and the compiler.
    A compiler may be through before it is seen: then another one is started."""
    step = r.choice(["", "chip0", "chip0/kcore.bin", "chip0/param.bin"])
    for i in range(100):
        wait_for_compilers(cache)
        start_again(cache, where, f"{name}-{i}")
        d = Daemon("--cache-dir", cache, directory=where, healthy=False)
        found = []
        # The case dir appears at last, however quick it was.
        while not found and not (os.path.isdir(cache) and any(not entry.startswith(".") for entry in os.listdir(cache))):
            found = compilers(cache)
        if found and stop_when(found[0], lambda: [n for n in half_done(cache) if os.path.exists(os.path.join(cache, n, step))]):
            return d, found[0]
        for pid in found:
            send(pid, signal.SIGCONT)
        d.kill()
    raise SystemExit("FAIL: the compiler could not be stopped while it works")


def loads(wanted):
    """Killed again and again in the middle of compiling and loading; half of the times the compiler is killed with it."""
    r = random.Random(3)
    rounds = size(8, 60)
    compiling = left = 0
    with directory() as where:
        cache = where + "/cache"
        start = time.monotonic()
        Daemon("--cache-dir", cache, directory=where).kill()
        whole = time.monotonic() - start  # what a start takes on this machine
        for i in range(rounds):
            kill_compiler = i % 4 < 2
            if i % 2 == 0:
                d, pid = while_it_compiles(cache, where, r, f"old{i}")
                # The daemon sees nothing of what happens to its compiler; and one that is stopped when its daemon dies gets a
                # SIGHUP from the kernel, so that it goes on before.
                d.process.send_signal(signal.SIGSTOP)
                send(pid, signal.SIGKILL if kill_compiler else signal.SIGCONT)
                d.kill()
                compiling += 1
                left += kill_compiler and bool(half_done(cache))
            else:
                d = Daemon("--cache-dir", cache, directory=where, healthy=False)
                time.sleep(r.random() * whole)
                d.kill()
                for pid in compilers(cache) if kill_compiler else []:
                    send(pid, signal.SIGKILL)
        wait_for_compilers(cache)
        # Of another key, which nobody will ever compile again; and one whose compiler lives.
        for name in (".dead.txda-new", ".live.txda-new", ".odd.txda-old"):
            os.makedirs(os.path.join(cache, name, "chip0"))
            with open(os.path.join(cache, name, "chip0", "param.bin"), "w") as f:
                f.write("half")
        open(os.path.join(cache, ".lonely.txda-lock"), "w").close()
        with open(os.path.join(cache, ".live.txda-lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with Daemon("--cache-dir", cache, directory=where) as d:
                got = d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30, "seed": 3})[1]["choices"]
                tally.check(got == wanted, f"after kills in the middle of loads it says {got}, not {wanted}")
                hidden = sorted(name for name in os.listdir(cache) if name.startswith("."))
                tally.check(hidden == [".live.txda-lock", ".live.txda-new"], f"left in the cache: {hidden}")
                tally.check(len(os.listdir(cache)) == 3, f"in the cache: {os.listdir(cache)}")
        print(f"killed {rounds} times while it loaded, {compiling} times in the middle of a compile, {left} times with its compiler, which "
              "left half a case dir")
        tally.check(left == rounds // 4, f"of {rounds // 4} kills with the compiler {left} left half a case dir")


def generation():
    """Killed while it generates: its clients learn it at once, and it comes back on the same socket."""
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "seed": 7, "logprobs": 2}
    with Daemon() as d:
        wanted = [d.post("/v1/completions", {**body, "seed": i})[1]["choices"] for i in range(4)]
        for i in range(size(3, 20)):
            streams = [raw_request(d.path, "/v1/completions", {**FOREVER, "stream": True, "seed": k}) for k in range(16)]
            for s in streams:
                s.recv(1)
            d.kill()
            for s in streams:
                s.settimeout(10)
                try:
                    while s.recv(65536):
                        pass
                except ConnectionResetError:
                    pass
                except TimeoutError:
                    tally.check(False, "a client of a dead daemon hangs")
                s.close()
            tally.check(os.path.exists(d.path), "kill -9 removed the socket")
            d.start()
            got = at_once([lambda k=k: d.post("/v1/completions", {**body, "seed": k})[1]["choices"] for k in range(4)], 4)
            tally.check(got == wanted, f"after kill {i} it says {got}, not {wanted}")
        print(f"killed {size(3, 20)} times with 16 streams: the same tokens afterwards")
        return d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30, "seed": 3})[1]["choices"]


def main():
    wanted = generation()
    loads(wanted)
    clients()
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
