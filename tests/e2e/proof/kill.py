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


def compilers(cache):
    """Processes that compile into that cache."""
    return [int(pid) for pid in subprocess.run(["pgrep", "-f", f"txda-compile .*{cache}"],
                                               stdout=subprocess.PIPE).stdout.split()]


def has_case(cache):
    return os.path.isdir(cache) and any(not name.startswith(".") for name in os.listdir(cache))


def wait_for_compilers(cache):
    """Until those of daemons that were killed are through."""
    check(until(lambda: not compilers(cache)), "a compiler goes on for ever")


def loads(wanted):
    """
    Killed again and again somewhere in the middle of compiling and loading; half of the times the compiler is killed with it. What is
    left of that is gone after the next start.
    """
    r = random.Random(3)
    rounds = size(8, 60)
    with directory() as where:
        cache = where + "/cache"
        start = time.monotonic()
        Daemon("--cache-dir", cache, directory=where).kill()
        whole = time.monotonic() - start  # what a start takes on this machine
        for i in range(rounds):
            if i % 2 == 0:  # nothing is compiled yet
                wait_for_compilers(cache)
                shutil.rmtree(cache)
            d = Daemon("--cache-dir", cache, directory=where, ready=None)
            if i % 2 == 0:
                until(lambda: compilers(cache) or has_case(cache))
            time.sleep(r.random() * whole / 2)
            d.kill()
            for pid in compilers(cache) if i % 4 < 2 else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
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
