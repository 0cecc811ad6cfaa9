#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# cache_full.py - a disk without room for the cache: the error names the path and the reason, the daemon lives, nothing
# half-made stays, and the load works once there is room.
#
# The disk is a tmpfs in a mount namespace (of a user namespace, unless root); before that, and where
# namespaces may not be made, files are limited in size.
import json
import os
import re
import resource
import subprocess

from daemon import MODEL, MS_REMOUNT, Daemon, check, conclude, directory, mount, own_mounts


def load(d):
    """(status, words, state)"""
    status, answer = d.post("/v1/models/load", {"model": "demo"})
    state = json.loads(d.get("/v1/models/demo")[1])
    error = answer.get("error")
    return status, error.get("message", "") if isinstance(error, dict) else str(answer), state["state"]


def refused(d, cache, reason, what):
    """A load for which there is no room; what it leaves behind."""
    status, words, state = load(d)
    print(f"{what}: {status}, {words}")
    check(status == 503, f"{what}: status {status}")
    check(cache in words and re.search(reason, words), f"{what}: the error names not {cache} and {reason}: {words}")
    check(state == "failed", f"{what}: the model is {state}")
    check(not os.listdir(cache), f"{what}: left in the cache: {os.listdir(cache)}")
    status, body = d.get("/health")
    check(status == 503 and reason.split("|")[0] in body.decode(), f"{what}: /health says {status} {body}")
    status, answer = d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3})
    check(status in (200, 503) and (status == 200 or answer["error"]["code"] in ("model_failed", "model_loading")),
          f"{what}: {status} {answer}")


def works(d, what):
    status, words, state = load(d)
    check(status == 200 and state == "ready", f"{what}: {status} {words}, the model is {state}")
    status, answer = d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3, "temperature": 0})
    check(status == 200 and answer["choices"][0]["text"], f"{what}: {status} {answer}")


def main():
    with directory() as where:
        cache = where + "/cache"
        os.mkdir(cache)
        weights = os.path.getsize(os.path.join(MODEL, "model.safetensors"))
        options = ["--cache-dir", cache, "--load", "demand"]
        with Daemon(*options, directory=where) as d:
            # Its children inherit it, and take all that the hard limit lets them.
            resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (weights // 2, weights // 2))
            refused(d, cache, "File too large|file size", "a limit of the size of files")
        with Daemon(*options, directory=where) as d:
            works(d, "without the limit")
        if not own_mounts() or not mount("tmpfs", cache, f"size={weights // 2}"):
            print("no namespaces here: only a limit of the size of files was tested")
            conclude()
        with Daemon(*options, directory=where) as d:
            refused(d, cache, "has no room|No space left on device", "half the room")
            check(mount("tmpfs", cache, "size=64k", MS_REMOUNT), "remounting")
            refused(d, cache, "has no room", "no room at all")
            # Inodes run out, too.
            check(mount("tmpfs", cache, "size=1g,nr_inodes=3", MS_REMOUNT), "remounting")
            refused(d, cache, "No space left on device", "no inodes")
            check(mount("tmpfs", cache, f"size={4 * weights},nr_inodes=1000", MS_REMOUNT), "remounting")
            works(d, "with room")
        subprocess.run(["umount", cache], check=True)
    conclude()


main()
