#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# cache_full.py - a disk without room for the cache: the error names the path and the reason, the daemon lives, nothing
# half-made stays, and the load works once there is room.
#
# The disk is a tmpfs in a mount namespace (of a user namespace, unless root). Where namespaces may not be made, a limit of the
# size of files does in its place (NO_NAMESPACE=1 tries that).
import ctypes
import json
import os
import re
import resource
import subprocess
import sys

from proof import MODEL, Daemon, Tally, directory

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REMOUNT, MS_REC, MS_PRIVATE = 32, 1 << 14, 1 << 18
tally = Tally()
libc = ctypes.CDLL(None, use_errno=True)


def own_namespace():
    """Mounts of this process and its children are their own from now on; whether that could be had."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS if not uid else CLONE_NEWNS | CLONE_NEWUSER):
        return False
    if uid:
        for name, words in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open("/proc/self/" + name, "w") as f:
                f.write(words)
    return not libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)


def mount_tmpfs(path, options, flags=0):
    return not libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options.encode())


def load(d):
    """(status, words, state)"""
    status, answer = d.post("/v1/models/load", {"model": "demo"})
    state = json.loads(d.get("/v1/models/demo")[1])
    return status, answer.get("error", {}).get("message", "") if isinstance(answer.get("error"), dict) else str(answer), state["state"]


def refused(d, cache, reason, what):
    """A load for which there is no room; what it leaves behind."""
    status, words, state = load(d)
    print(f"{what}: {status}, {words}")
    tally.check(status == 503, f"{what}: status {status}")
    tally.check(cache in words and re.search(reason, words), f"{what}: the error names not {cache} and {reason}: {words}")
    tally.check(state == "failed", f"{what}: the model is {state}")
    tally.check(not os.listdir(cache), f"{what}: left in the cache: {os.listdir(cache)}")
    status, body = d.get("/health")
    tally.check(status == 503 and reason.split("|")[0] in body.decode(), f"{what}: /health says {status} {body}")
    status, answer = d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3})
    tally.check(status in (200, 503) and (status == 200 or answer["error"]["code"] in ("model_failed", "model_loading")), f"{what}: {status} {answer}")


def works(d, what):
    status, words, state = load(d)
    tally.check(status == 200 and state == "ready", f"{what}: {status} {words}, the model is {state}")
    status, answer = d.post("/v1/completions", {"model": "demo", "prompt": "Once", "max_tokens": 3, "temperature": 0})
    tally.check(status == 200 and answer["choices"][0]["text"], f"{what}: {status} {answer}")
    print(f"{what}: loaded")


def main():
    with directory() as where:
        cache = where + "/cache"
        os.mkdir(cache)
        weights = os.path.getsize(os.path.join(MODEL, "model.safetensors"))
        options = ["--cache-dir", cache, "--load", "demand"]
        if not os.environ.get("NO_NAMESPACE") and own_namespace() and mount_tmpfs(cache, f"size={weights // 2}"):
            print("a tmpfs of half the model's size")
            with Daemon(*options, directory=where) as d:
                refused(d, cache, "has no room|No space left on device", "half the room")
                tally.check(mount_tmpfs(cache, "size=64k", MS_REMOUNT), "remounting")
                refused(d, cache, "has no room", "no room at all")
                # Inodes run out, too.
                tally.check(mount_tmpfs(cache, "size=1g,nr_inodes=3", MS_REMOUNT), "remounting")
                refused(d, cache, "No space left on device", "no inodes")
                tally.check(mount_tmpfs(cache, f"size={4 * weights},nr_inodes=1000", MS_REMOUNT), "remounting")
                works(d, "with room")
                tally.check(d.stop() == 0, "exit status")
            subprocess.run(["umount", cache], check=True)
        else:
            print("no namespaces here: a limit of the size of files")
            with Daemon(*options, directory=where) as d:
                # Its children inherit it.
                resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (weights // 2, resource.RLIM_INFINITY))
                refused(d, cache, "File too large|file size", "a limit of the size of files")
                resource.prlimit(d.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                works(d, "without the limit")
    tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
