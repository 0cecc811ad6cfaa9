#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# redteam.py - three users: one attacks with all that a request can be, the second loads hostile
# checkpoints in turn, which change meanwhile, the third chats. Each of the third one's chats is
# answered whole, with the same words and never with 429 or 503, and afterwards the daemon's memory,
# descriptors and processes are what they were. Needs root.
import contextlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

from daemon import MODEL, SANITIZED, Connection, Daemon, as_user, check, conclude, connect, directory, size, until

SECONDS = size(15, 300)
ATTACKER, OWNER, FRIEND = 60001, 60002, 60003
MODELS = 4
PROMPT = "Once upon a time there was a king"
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Tell me of the fox"}], "max_tokens": 60, "temperature": 0}
# KiB beyond the grammars that the daemon keeps for later requests: free pages between blocks, stacks.
MEMORY_ALLOWANCE = 1000000 if SANITIZED else 16384
MAX_MEMORY = 256 << 20


# ---- one who attacks -------------------------------------------------------------------------------


def half_sent(path):
    """As many connections as it gets, each with the beginning of a large body."""
    crowd = []
    with contextlib.suppress(OSError):
        for _ in range(1500):
            s = connect(path)[0]
            s.settimeout(5)
            crowd.append(s)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + b" " * 20000)
    time.sleep(1)  # how long they are held
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
        schema = {"type": "object", "properties": {f"p{k}": schema if k == i % 3 else {"enum": list(range(50))}
                                                   for k in range(3)}}
    call("/v1/chat/completions", dict(CHAT, response_format={"type": "json_schema",
                                                             "json_schema": {"name": "x", "schema": schema}}))


def torn(path, r):
    with contextlib.suppress(OSError), contextlib.closing(connect(path)[0]) as s:
        s.settimeout(5)
        s.sendall(r.randbytes(r.randrange(1, 5000)))


def many_choices(call):
    call("/v1/completions", {"model": "demo", "prompt": PROMPT, "n": 64, "logprobs": 20, "max_tokens": 400,
                             "ignore_eos": True})


def many_embeddings(call):
    call("/v1/embeddings", {"model": "demo", "input": [[i % 500 + 5, 7, 9] for i in range(2048)]})


def hostile_grammar(call, r):
    call("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True,
                             "guided_regex": "((a|b|[c-z ]){1,40}[.,!?]?){%d}" % r.randrange(10, 30)})


ATTACKS = [
    lambda path, call, r: many_choices(call),
    lambda path, call, r: many_embeddings(call),
    lambda path, call, r: hostile_grammar(call, r),
    lambda path, call, r: large_texts(call),
    lambda path, call, r: deep_schema(call),
    lambda path, call, r: half_sent(path),
    lambda path, call, r: torn(path, r),
]


def attack(path, call, number):
    r = random.Random(number)
    as_user(ATTACKER)
    while True:
        r.choice(ATTACKS)(path, call, r)


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
    """A string that is doubled 60 times."""
    with open(os.path.join(where, "tokenizer_config.json"), "w") as f:
        json.dump({"chat_template": "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
                                    "{% endfor %}"}, f)


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
        f.write(r.choice(["[" * 500000, '{"format": 1, "tp": 1e999, "chips": [' + "{}," * 200000 + "{}]}",
                          '{"name": "\\ud800"}', "{"]))


HARMS = [truncated, lying_header, endless_template, fat_template, broken_tokenizer, fifo, link, odd_numbers, odd_case]


def make_hostile(where, harm, r):
    """The model's directory anew with one harm done to it, as its owner would."""
    shutil.rmtree(where, ignore_errors=True)
    shutil.copytree(MODEL, where)
    harm(where, r)
    for name in [where] + [os.path.join(where, name) for name in os.listdir(where)]:
        os.lchown(name, OWNER, OWNER)


def load_hostile(call, where):
    """Changes the checkpoints while they are compiled and loaded, and has them loaded by asking."""
    r = random.Random(5)
    names = [f"evil{i}" for i in range(MODELS)]
    while True:
        name = r.choice(names)
        with contextlib.suppress(OSError):
            os.setresuid(0, 0, 0)
            make_hostile(os.path.join(where, name), r.choice(HARMS), r)
            os.setresuid(-1, OWNER, 0)
        call("/v1/chat/completions", dict(CHAT, model=name, max_tokens=3))


# ---- one who chats ---------------------------------------------------------------------------------


def chats(d, seconds):
    """The words of the friend's chats."""
    texts, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        events = list(d.stream("/v1/chat/completions", CHAT, FRIEND))
        if not check(events and events[-1] == "[DONE]" and all("choices" in e for e in events[:-1]),
                     f"a chat: {events[-2:]}"):
            break
        texts.add("".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1]))
    return texts


@contextlib.contextmanager
def process(path, work, *arguments):
    """A process that works, with a way to ask, until this is left."""
    def call(route, body):
        with contextlib.suppress(OSError, ValueError), contextlib.closing(Connection(connect(path)[0])) as c:
            c.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
            c.getresponse().read()
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            work(*([path] if work is attack else []), call, *arguments)
        finally:
            os._exit(1)
    try:
        yield
        check(os.waitpid(pid, os.WNOHANG) == (0, 0), f"{work.__name__} has ended")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def children(pid):
    return len(subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE).stdout.split())


def main():
    if os.geteuid():
        print("three users take root")
        sys.exit(77)
    with directory() as where:
        os.chmod(where, 0o711)
        case = where + "/case"
        subprocess.run([os.environ["COMPILER"], MODEL, "-q", "-o", case, "--hidden"], check=True)
        options = ["--model", "demo=" + case, "--socket-mode", "0666", "--no-access-log", "--load", "demand",
                   "--max-memory", str(MAX_MEMORY),
                   "--kv-cache-memory", "32M", "--text-timeout", "3"]
        for i in range(MODELS):
            make_hostile(f"{where}/evil{i}", HARMS[i], random.Random(i))
            options += ["--model", f"evil{i}={where}/evil{i}"]
        env = {"TXDA_CMODEL": "chips=1,mem=4G", "CACHE_DIRECTORY": where + "/cache"}
        with Daemon(*options, env=env, model=False, ready=None) as d:
            d.wait_for(lambda: d.post("/v1/chat/completions", dict(CHAT, max_tokens=1))[0] == 200,
                       "the model cannot be loaded")
            alone = chats(d, 1)
            d.warm_up()
            before, processes = d.sample_at_rest(), children(d.process.pid)
            with contextlib.ExitStack() as crew:
                for number in range(4):
                    crew.enter_context(process(d.path, attack, number))
                crew.enter_context(process(d.path, load_hostile, where))
                texts = chats(d, SECONDS)
            check(alone == texts and len(texts) == 1, f"texts: {alone}, then {texts}")
            check(until(lambda: d.idle() and children(d.process.pid) <= processes + 2 * MODELS, 120),
                  "it does not come to rest")
            after = d.sample_at_rest()
            # Those that happen to be well have weights and a KV cache.
            for i in range(MODELS):
                d.post("/v1/models/unload", {"model": f"evil{i}"})
            kept = d.metrics()["http_kept_bytes"]
            limit = before["rss"] + kept / 1024 + MEMORY_ALLOWANCE
            rss = d.rss_below(limit)
            check(rss <= limit, f"memory {before['rss']} KiB, then {rss}, {kept / 1024:.0f} of them grammars kept for later requests")
            check(kept <= MAX_MEMORY / 4, f"{kept} bytes are kept, more than a quarter of the memory")
            # A model that happens to be well has a text process with sockets.
            check(after["fds"] <= before["fds"] + 8 * MODELS, f"descriptors {before['fds']}, then {after['fds']}")
    conclude()


main()
