#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# kill.py - kill -9 of the daemon in the middle of a load, a compile included, and in the middle of
# generation: nothing stays behind, and what comes after is as if it had not been. That of clients is
# in robust.sh and soak.py.
import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import time

from daemon import Daemon, at_once, check, conclude, directory, raw_request, size, until

FOREVER = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True}


def state_of(pid):
    """As /proc says: "T" is stopped, "Z" ended, "" gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def compilers(cache):
    """Processes that compile into that cache."""
    found = subprocess.run(["pgrep", "-f", f"txda-compile .*{cache}"], stdout=subprocess.PIPE).stdout.split()
    return [pid for pid in map(int, found) if state_of(pid) not in ("Z", "")]


def half_done(cache):
    """What the daemon has a compiler work in, and the case dir in the making there."""
    works = [name for name in os.listdir(cache) if name.endswith(".txda-new")] if os.path.isdir(cache) else []
    return [os.path.join(name, ".case.txda-new") for name in works]


def has_case(cache):
    return os.path.isdir(cache) and any(not name.startswith(".") for name in os.listdir(cache))


def wait_for_compilers(cache):
    """Until those of daemons that were killed are through."""
    check(until(lambda: not compilers(cache), 600), "a compiler goes on for ever")


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def stop_when(pid, condition):
    """Lets the process run until that is true, and stops it; whether it is stopped and it still is true."""
    while not condition() and state_of(pid) not in ("Z", ""):
        pass
    send(pid, signal.SIGSTOP)
    while state_of(pid) not in ("T", "Z", ""):
        pass
    return state_of(pid) == "T" and bool(condition())


def while_it_compiles(cache, where, r):
    """
    A daemon whose compiler is stopped with half a case dir in the cache, at its beginning or further on; and the compiler. A
    compiler may be through before it is seen: then another one is started.
    """
    step = r.choice(["", "chip0", "chip0/kcore.bin", "chip0/param.bin"])
    for _ in range(100):
        wait_for_compilers(cache)
        for entry in os.listdir(cache):
            if not entry.startswith("."):
                shutil.rmtree(os.path.join(cache, entry))
        d = Daemon("--cache-dir", cache, directory=where, ready=None)
        found = []
        d.wait_for(lambda: found.extend(compilers(cache)) or found or has_case(cache), "nothing is compiled")
        if found and stop_when(found[0], lambda: [n for n in half_done(cache) if os.path.exists(os.path.join(cache, n, step))]):
            return d, found[0]
        for pid in found:
            send(pid, signal.SIGCONT)
        d.kill()
    raise SystemExit("FAIL: the compiler could not be stopped while it works")


def loads(wanted):
    """
    Killed again and again in the middle of compiling and loading; half of the times the compiler is killed with it. What is
    left of that is gone after the next start.
    """
    r = random.Random(3)
    rounds, left = size(8, 60), 0
    with directory() as where:
        cache = where + "/cache"
        start = time.monotonic()
        Daemon("--cache-dir", cache, directory=where).kill()
        whole = time.monotonic() - start  # what a start takes on this machine
        for i in range(rounds):
            kill_compiler = i % 4 < 2
            if i % 2 == 0:  # nothing is compiled yet
                d, pid = while_it_compiles(cache, where, r)
                # The daemon sees nothing of what happens to its compiler; and one that is stopped when its daemon dies gets
                # a SIGHUP from the kernel, so that it goes on before.
                d.process.send_signal(signal.SIGSTOP)
                send(pid, signal.SIGKILL if kill_compiler else signal.SIGCONT)
                d.kill()
                left += kill_compiler and bool(half_done(cache))
            else:
                d = Daemon("--cache-dir", cache, directory=where, ready=None)
                time.sleep(r.random() * whole)
                d.kill()
                for pid in compilers(cache) if kill_compiler else []:
                    send(pid, signal.SIGKILL)
        check(left == rounds // 4, f"{left} of {rounds // 4} killed compilers left half a case dir")
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
                got = d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30,
                                                 "seed": 3})[1]["choices"]
                check(got == wanted, f"after kills in the middle of loads it says {got}, not {wanted}")
                hidden = sorted(name for name in os.listdir(cache) if name.startswith("."))
                check(hidden == [".live.txda-lock", ".live.txda-new"], f"left in the cache: {hidden}")
                check(len(os.listdir(cache)) == 3, f"in the cache: {os.listdir(cache)}")


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
                    check(False, "a client of a dead daemon hangs")
                s.close()
            check(os.path.exists(d.path), "kill -9 removed the socket")
            d.start()
            got = at_once([lambda k=k: d.post("/v1/completions", {**body, "seed": k})[1]["choices"] for k in range(4)], 4)
            check(got == wanted, f"after kill {i} it says {got}, not {wanted}")
        print(f"killed {size(3, 20)} times with 16 streams: the same tokens afterwards")
        return d.post("/v1/completions", {"model": "demo", "prompt": "A fox", "max_tokens": 30, "seed": 3})[1]["choices"]


def main():
    wanted = generation()
    loads(wanted)
    conclude()


main()
