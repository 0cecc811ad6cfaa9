#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# redteam.py - three users: one attacks with all that a request can be, the second loads hostile checkpoints in turn, the
# third chats.
#
# Times are printed, not asserted: the third one's time to the first token and between two tokens, as ratios to those on an
# idle daemon, and to those beside processes that leave the daemon alone and take as much processor time as the attackers' and
# as the attackers made the daemon's threads take, except its engine's: what that time costs on a machine of few processors,
# without what the daemon makes of it. ATTACKS= names attacks, EACH=1 has one after the other. Asserted is that each of its chats is answered whole, with the same words and never with 429 or 503, and that
# afterwards the daemon's memory, descriptors and processes are what they were.
import contextlib
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import sys
import time

from neighbours import Neighbour, hostile_grammar, many_choices, many_embeddings, percentile, with_vectors
from proof import MODEL, SANITIZED, Daemon, Tally, connected, directory, size

SECONDS = size(15, 300)
ATTACKER, OWNER, FRIEND = 60001, 60002, 60003
# Threads that do everybody's steps; the chips' are those of the device model.
ENGINE = {"txda-engine", "txda-masks", "txda-core"}
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Tell me of the fox"}], "max_tokens": 60, "temperature": 0}
# KiB beyond the grammars that the daemon keeps for later requests: free pages between blocks, stacks.
MEMORY_ALLOWANCE = 1000000 if SANITIZED else 16384
MAX_MEMORY = 256 << 20
tally = Tally()


# ---- one who attacks -------------------------------------------------------------------------------


def half_sent(path):
    """As many connections as it gets, each with the beginning of a large body."""
    crowd = []
    with contextlib.suppress(OSError):
        for _ in range(1500):
            s = connected(path, 5)
            crowd.append(s)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + b" " * 20000)
    time.sleep(1)
    for s in crowd:
        s.close()


def large_texts(call):
    """Texts of megabytes, also where the last message must be found again in the prompt."""
    text = "ab" * 1500000
    call("/tokenize", {"model": "demo", "prompt": text})
    call("/tokenize", {"model": "demo", "messages": [{"role": "user", "content": text}], "continue_final_message": True,
                       "add_generation_prompt": False})


def deep_schema(call):
    schema = {"type": "string"}
    for i in range(60):
        schema = {"type": "object", "properties": {f"p{k}": schema if k == i % 3 else {"enum": list(range(50))} for k in range(3)}}
    call("/v1/chat/completions", dict(CHAT, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}))


def torn(path, r):
    with contextlib.suppress(OSError):
        s = connected(path, 5)
        s.sendall(r.randbytes(r.randrange(1, 5000)))
        s.close()


ATTACKS = {
    "choices": lambda neighbour, r: many_choices(neighbour.call),
    "embeddings": lambda neighbour, r: many_embeddings(neighbour.call),
    "grammar": lambda neighbour, r: hostile_grammar(neighbour.call),
    "texts": lambda neighbour, r: large_texts(neighbour.call),
    "schema": lambda neighbour, r: deep_schema(neighbour.call),
    "half": lambda neighbour, r: half_sent(neighbour.path),
    "torn": lambda neighbour, r: torn(neighbour.path, r),
}


# ---- one whose checkpoints are hostile -------------------------------------------------------------


def truncated(where, r):
    """A header that promises more than there is."""
    path = os.path.join(where, "model.safetensors")
    os.truncate(path, r.randrange(8, os.path.getsize(path)))


def lying_header(where, r):
    with open(os.path.join(where, "model.safetensors"), "r+b") as f:
        f.write(struct.pack("<Q", r.choice([0, 1, 1 << 20, 1 << 62, (1 << 64) - 1])))


def endless_template(where, r):
    with open(os.path.join(where, "tokenizer_config.json"), "w") as f:
        json.dump({"chat_template": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"}, f)


def fat_template(where, r):
    with open(os.path.join(where, "tokenizer_config.json"), "w") as f:
        json.dump({"chat_template": "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"}, f)


def broken_tokenizer(where, r):
    path = os.path.join(where, "tokenizer.json")
    with open(path, "rb") as f:
        data = bytearray(f.read())
    for _ in range(20):
        data[r.randrange(len(data))] = r.randrange(256)
    with open(path, "wb") as f:
        f.write(data)


def fifo(where, r):
    path = os.path.join(where, r.choice(["config.json", "tokenizer.json", "model.safetensors"]))
    os.unlink(path)
    os.mkfifo(path)


def link(where, r):
    path = os.path.join(where, r.choice(["config.json", "tokenizer.json", "model.safetensors"]))
    os.unlink(path)
    os.symlink(r.choice(["/etc/shadow", "/dev/zero", "/proc/self/mem", path]), path)


def odd_numbers(where, r):
    path = os.path.join(where, "config.json")
    with open(path) as f:
        config = json.load(f)
    key = r.choice([k for k, v in config.items() if isinstance(v, int)])
    config[key] = r.choice([0, -1, 1, 3, 1 << 31, 1 << 62])
    with open(path, "w") as f:
        json.dump(config, f)


def odd_case(where, r):
    """A compiled model, so that the daemon looks at it itself."""
    with open(os.path.join(where, "model_info.json"), "w") as f:
        f.write(r.choice(["[" * 500000, '{"format": 1, "tp": 1e999, "chips": [' + "{}," * 200000 + "{}]}", '{"name": "\\ud800"}', "{"]))


HARMS = [truncated, lying_header, endless_template, fat_template, broken_tokenizer, fifo, link, odd_numbers, odd_case]


def make_hostile(where, harm, r):
    """The model's directory anew with one harm done to it, as its owner would."""
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(MODEL, where)
    harm(where, r)
    for name in [where] + [os.path.join(where, name) for name in os.listdir(where)]:
        os.lchown(name, OWNER, OWNER)


def load_hostile(neighbour, where, models):
    """Changes the checkpoints while they are compiled and loaded, and has them loaded by asking."""
    r = random.Random(5)
    names = [f"evil{i}" for i in range(models)]
    while True:
        name = r.choice(names)
        with contextlib.suppress(OSError):
            os.setresuid(0, 0, 0)
            make_hostile(os.path.join(where, name), r.choice(HARMS), r)
            os.setresuid(-1, OWNER, 0)
        neighbour.call("/v1/chat/completions", dict(CHAT, model=name, max_tokens=3))


# ---- one who chats ---------------------------------------------------------------------------------


class Friend(Neighbour):
    """Chats as a user of its own and tells what it saw through a pipe."""

    def chats(self, d, seconds):
        first, each, texts, wrong = [], [], set(), []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not wrong:
            n, last, text, done = 0, 0, "", False
            for at, event in d.stream("/v1/chat/completions", CHAT):
                done = event == "[DONE]"
                if done:
                    break
                if "choices" not in event:
                    wrong.append(str(event))
                    break
                text += event["choices"][0]["delta"].get("content") or ""
                if not n:
                    first.append(at)
                n, last = n + 1, at
            if not done and not wrong:
                wrong.append("a chat ended early")
            if n:
                each.append(last / n)
            texts.add(text)
            time.sleep(0.05)
        return {"first": first, "each": each, "texts": sorted(texts), "wrong": wrong}

    def measure(self, d, seconds):
        told, tell = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.setsid()
                os.setgroups([])
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
                os.write(tell, json.dumps(self.chats(d, seconds)).encode())
            finally:
                os._exit(0)
        os.close(tell)
        with os.fdopen(told) as f:
            data = f.read()
        os.waitpid(pid, 0)
        return json.loads(data)


def show(what, seen, idle=None, control=None):
    """Of streams the whole time counts: a client that the kernel lets wait reads several tokens at once."""
    def figures(of):
        first, each = sorted(of["first"]), sorted(of["each"])
        return [percentile(first, 0.5), percentile(first, 0.98), percentile(each, 0.5), statistics.mean(each)]
    found = figures(seen)
    print(f"{what}: {len(seen['first'])} chats; ms to the first token in the median and at the 98th percentile, and for each token of "
          "a chat in the median and in the mean: " + ", ".join(f"{1e3 * x:.2f}" for x in found)
          + ("; as times of an idle daemon: " + ", ".join(f"{a / b:.1f}" for a, b in zip(found, figures(idle))) if idle else "")
          + ("; as times of the same work beside it: " + ", ".join(f"{a / b:.1f}" for a, b in zip(found, figures(control)))
             if control else ""),
          flush=True)


def processor_seconds(crew):
    """What the crew's processes have used: those of their sessions."""
    sessions, ticks = {neighbour.pid for neighbour in crew}, 0
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{other}/stat") as f:
                stat = f.read().rsplit(")", 1)[1].split()
            if int(stat[3]) in sessions:
                ticks += int(stat[11]) + int(stat[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def daemon_seconds(pid):
    """What the daemon's threads have used, except its engine's; its children are not counted."""
    ticks = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{thread}/stat") as f:
                name, stat = f.read().split("(", 1)[1].rsplit(")", 1)
            if name not in ENGINE:
                ticks += int(stat.split()[11]) + int(stat.split()[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def beside(d, friend, crew, seconds):
    """What the friend sees beside the crew; how many processors the crew takes, and how many the daemon's threads."""
    with contextlib.ExitStack() as those:
        for neighbour in crew:
            those.enter_context(neighbour)
        start, before, own = time.monotonic(), processor_seconds(crew), daemon_seconds(d.process.pid)
        seen = friend.measure(d, seconds)
        passed = time.monotonic() - start
        return seen, (processor_seconds(crew) - before) / passed, max(0, daemon_seconds(d.process.pid) - own) / passed


def children(pid):
    found = 0
    for other in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{other}/stat") as f:
                found += int(f.read().rsplit(")", 1)[1].split()[1]) == pid
    return found


def main():
    if os.geteuid():
        print("three users take root")
        sys.exit(77)
    models = 4
    with directory() as where:
        os.chmod(where, 0o711)
        options = ["--socket-mode", "0666", "--no-access-log", "--load", "demand", "--max-memory", str(MAX_MEMORY), "--kv-cache-memory", "32M",
                   "--text-timeout", "3"]
        options += os.environ.get("OPTIONS", "").split()
        for i in range(models):
            make_hostile(f"{where}/evil{i}", HARMS[i], random.Random(i))
            options += ["--model", f"evil{i}={where}/evil{i}"]
        env = {"TXDA_CMODEL": "chips=1,mem=4G", "CACHE_DIRECTORY": where + "/cache"}
        with with_vectors() as model, Daemon("--model", f"demo={model}", *options, env=env, model=False, healthy=False) as d:
            os.chmod(d.directory, 0o711)
            d.wait_for(lambda: d.post("/v1/chat/completions", dict(CHAT, max_tokens=1))[0] == 200, 120, "the model cannot be loaded")
            friend = Friend(d.path, FRIEND, None)
            idle, _, usual = beside(d, friend, [], max(5, SECONDS / 10))
            show("alone", idle)
            d.warm_up()
            before, processes = d.sample_at_rest(), children(d.process.pid)
            names = os.environ.get("ATTACKS", " ".join([*ATTACKS, "owner"])).split()
            for some in [[name] for name in names] if os.environ.get("EACH") else [names]:
                crew = [Owner(d.path, where, models)] if "owner" in some else []
                if set(some) & set(ATTACKS):
                    crew.append(Attacker(d.path, ATTACKER, [name for name in some if name in ATTACKS]))
                seen, processors, own = beside(d, friend, crew, SECONDS)
                more = max(0, own - usual)
                workers = [Worker(ATTACKER, sum(n.processes for n in crew), processors), Worker(None, max(1, math.ceil(more)), more)]
                control, same, _ = beside(d, friend, workers, max(5, SECONDS / 10))
                show(f"beside {same:.2f} processors' work", control, idle)
                show(f"under attack by {' '.join(some)}, whose processes took {processors:.2f} processors, and the daemon's threads "
                     f"{own:.2f} instead of {usual:.2f}", seen, idle, control)
                for wrong in idle["wrong"] + seen["wrong"]:
                    tally.check(False, f"a chat: {wrong}")
                tally.check(idle["texts"] == seen["texts"] and len(seen["texts"]) == 1, f"texts: {idle['texts']}, then {seen['texts']}")
            tally.check(d.until(lambda: d.idle() and children(d.process.pid) <= processes + 2 * models, 120), "it does not come to rest")
            after = d.sample_at_rest()
            # Those that happen to be well have weights and a KV cache.
            for i in range(models):
                d.post("/v1/models/unload", {"model": f"evil{i}"})
            kept = d.metrics()["http_kept_bytes"]
            rss = d.rss_below(before["rss"] + kept / 1024 + MEMORY_ALLOWANCE)
            print(f"memory {before['rss']} KiB, then {rss}, {kept / 1024:.0f} of them grammars kept for later requests; "
                  f"descriptors {before['fds']}, then {after['fds']}")
            tally.check(rss <= before["rss"] + kept / 1024 + MEMORY_ALLOWANCE, "memory grew")
            tally.check(kept <= MAX_MEMORY / 4, "more is kept than a quarter of the memory")
            # A model that happens to be well has a text process with sockets.
            tally.check(after["fds"] <= before["fds"] + 8 * models, "descriptors are left")
            tally.check(d.stop() == 0, "exit status")
    tally.conclude()


class Attacker(Neighbour):
    """Four processes do one attack after the other, each in an order of its own."""

    def __init__(self, path, uid, names):
        self.random, self.names = None, names
        super().__init__(path, uid, self.attack, 4)

    def attack(self, call):
        self.random = self.random or random.Random(self.number)
        ATTACKS[self.random.choice(self.names)](self, self.random)


class Worker(Neighbour):
    """Processes that take so many processors together and ask nothing of the daemon; with a user, or with the daemon's."""

    def __init__(self, uid, processes, processors):
        self.share = min(1, processors / processes)
        super().__init__(None, uid, self.compute, processes)

    def compute(self, _):
        start, used = time.monotonic(), time.process_time()
        while True:
            if time.process_time() - used < self.share * (time.monotonic() - start):
                sum(range(2000))
            else:
                time.sleep(0.001)


class Owner(Neighbour):
    """Its process keeps the right to write as the owner; it speaks with the daemon as the owner."""

    def __init__(self, path, where, models):
        super().__init__(path, None, lambda call: load_hostile(self, where, models))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()
