#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# dead_files.py - a model on a file system that does not answer: the daemon starts, serves and loads the others, and ends.
#
# The file system is a FUSE mount in a mount namespace of its own, whose requests nobody reads. Needs root.
import ctypes
import json
import os
import sys
import threading
import time

from proof import MODEL, Daemon, Tally, directory

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
CHAT = {"messages": [{"role": "user", "content": "Tell me of the fox"}], "max_tokens": 3, "temperature": 0}
tally = Tally()
libc = ctypes.CDLL(None, use_errno=True)


def mount_dead(path):
    """The descriptor whose closing ends all requests with an error, or None."""
    try:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    data = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
            libc.mount(b"dead", path.encode(), b"fuse", 0, data.encode()):
        os.close(fd)
        return None
    return fd


def asked(d, model):
    status, answer = d.post("/v1/chat/completions", dict(CHAT, model=model))
    return status, answer


def main():
    if os.geteuid():
        print("mounting takes root")
        sys.exit(77)
    with directory() as where:
        dead = where + "/dead"
        os.mkdir(dead)
        fd = mount_dead(dead)
        if fd is None:
            print("no FUSE here")
            sys.exit(77)
        os.mkdir(where + "/run")
        models = ["--model", f"dead={dead}/model", "--model", f"demo={MODEL}", "--model", f"other={MODEL}"]
        with Daemon(*models, "--load", "demand", "--load-timeout", "5", env={"TXDA_CMODEL": "chips=1,mem=4G"}, model=False,
                    directory=where + "/run", healthy=False) as d:
            d.wait_for(lambda: asked(d, "demo")[0] == 200, 120, "it does not serve beside a file system that does not answer")
            # Who asks for it waits; others' models are loaded meanwhile.
            waits = threading.Thread(target=lambda: asked(d, "dead"), daemon=True)
            waits.start()
            time.sleep(0.5)
            status, answer = asked(d, "other")
            tally.check(status == 200, f"another model: {status} {answer}")
            state = json.loads(d.get("/v1/models/dead")[1])["state"]
            tally.check(state in ("failed", "loading"), f"the model is {state}")
            print(f"served beside a model that is {state}")
            d.process.terminate()
            tally.check(d.until(lambda: d.process.poll() is not None, 60), "it does not end")
            os.close(fd)
            waits.join()
    tally.conclude()


if __name__ == "__main__":
    main()
