#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# dead_files.py - a model on a file system that does not answer: the daemon starts, serves and loads
# the others, and ends.
#
# The file system is a FUSE mount in a mount namespace of its own, whose requests nobody reads. Needs root.
import json
import os
import sys
import threading

from daemon import MODEL, Daemon, check, conclude, directory, mount, own_mounts, until

CHAT = {"messages": [{"role": "user", "content": "Tell me of the fox"}], "max_tokens": 3, "temperature": 0}


def mount_dead(path):
    """The descriptor whose closing ends all requests with an error, or None."""
    try:
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if not own_mounts() or not mount("fuse", path, f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"):
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
                    directory=where + "/run", ready=None) as d:
            d.wait_for(lambda: asked(d, "demo")[0] == 200, "it does not serve beside a file system that does not answer")
            # Who asks for it waits; others' models are loaded meanwhile.
            waits = threading.Thread(target=lambda: asked(d, "dead"), daemon=True)
            waits.start()
            check(until(lambda: json.loads(d.get("/v1/models/dead")[1])["state"] in ("failed", "loading")),
                  "the model on the dead file system is not loaded")
            status, answer = asked(d, "other")
            check(status == 200, f"another model: {status} {answer}")
            state = json.loads(d.get("/v1/models/dead")[1])["state"]
            check(state in ("failed", "loading"), f"the model is {state}")
            print(f"served beside a model that is {state}")
            d.process.terminate()
            check(until(lambda: d.process.poll() is not None), "it does not end")
            os.close(fd)
            waits.join()
    conclude()


main()
