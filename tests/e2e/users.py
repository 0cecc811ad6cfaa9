#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# users.py [TEST...] - users who share the daemon (with the fake engine): what one may not know of
# another, and what one cannot take from another. Needs root, to be several users. The shares
# themselves are those of test_budget and test_http_tcp.
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

from daemon import MODEL, Daemon, as_user, check, conclude, connect, directory, request_bytes, until

A, B, C = 61001, 61002, 61003  # users; A attacks where somebody does


def start(*options, **env):
    return Daemon("--socket-mode=0666", "--load=demand", *options, model=False, ready="/version", env=env)


def serve(*options, **env):
    return start("--model=m=" + MODEL, *options, **env)


# ---- what one may not know -------------------------------------------------------------------------


def test_hidden_models():
    secret = ["--model=secret=" + MODEL, f"--model-user={B}"]
    with start("--model=open=" + MODEL, *secret, "--model=broken=/nonexistent", f"--model-user={B}") as d:
        check(d.get("/health", B)[0] == 503, "a model that failed is healthy")
        status, data = d.get("/health", A)
        check(status == 200 and json.loads(data)["models"].keys() == {"open"}, f"/health tells {status} {data}")
        for uid, want in ((A, 1), (B, 3)):
            check(len(json.loads(d.get("/v1/models", uid)[1])["data"]) == want, f"not {want} models for user {uid}")
        check(d.post("/v1/completions", {"model": "secret", "prompt": "Once", "max_tokens": 2}, B)[0] == 200,
              "its user may not use it")
        chat = {"messages": [{"role": "user", "content": "A tale."}], "max_tokens": 2}
        calls = [("GET", "/v1/models/{}", None), ("POST", "/v1/chat/completions", chat),
                 ("POST", "/v1/completions", {"prompt": "Once"}),
                 ("POST", "/v1/embeddings", {"input": "Once"}), ("POST", "/tokenize", {"prompt": "Once"}),
                 ("POST", "/detokenize", {"tokens": [1]}), ("POST", "/v1/models/load", {}), ("POST", "/v1/models/plan", {}),
                 ("POST", "/v1/forward", {"input_ids": {"fd": 0, "shape": [1], "dtype": "int32"},
                                          "logits": {"fd": 0, "shape": [1, 8], "dtype": "float32"}})]
        for method, path, body in calls:
            answers = []
            for name in ("secret", "broken", "nosuch"):
                status, _, data = d.call(method, path.format(name), body if body is None else {**body, "model": name}, A)
                answers.append((status, data.decode().replace(name, "NAME")))
            check(len(set(answers)) == 1 and "secret" not in answers[2][1], f"{path} tells models from none: {answers}")
        status, data = d.get("/metrics", A)
        check(status == 200 and b"secret" not in data and b"broken" not in data, f"/metrics tells of others' models: {data}")
        check(b'model_name="secret"' in d.get("/metrics")[1], "/metrics tells root too little")
    # The first model is that of who may use it.
    with start(*secret, "--model=open=" + MODEL) as d:
        status, answer = d.post("/v1/completions", {"prompt": "Once", "max_tokens": 2}, A)
        check(status == 200 and answer["model"] == "open", f"without a name: {status} {answer}")


def test_ids():
    with serve() as d:
        ids = [d.post("/v1/completions", {"prompt": "Once", "max_tokens": 1})[1]["id"] for _ in range(8)]
        numbers = [int(i.split("-")[1], 16) for i in ids]
        gaps = {abs(a - b) for a, b in zip(numbers, numbers[1:])}
        check(len(gaps) == 7 and min(gaps) > 1 << 32, f"ids that count up: {ids}")


def test_metrics():
    with serve(f"--monitor-user={C}") as d:
        check(d.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 7}, B)[0] == 200, "B is not answered")
        own, others = (d.get("/metrics", uid)[1].decode() for uid in (B, A))
        check(f'txda_user_generation_tokens_total{{user="{B}"}} 7' in own, f"B does not see its tokens: {own}")
        check("model_name" not in own + others and "http_" not in others, f"sums of all users: {others}")
        check(set(re.findall(r'user="(\d+)"', others)) == {str(A)}, f"others' metrics: {others}")
        for uid in (0, C):
            text = d.get("/metrics", uid)[1].decode()
            check('model_name="m"' in text and f'user="{B}"' in text and f'user="{A}"' in text,
                  f"user {uid} sees not all: {text}")
        check(d.post("/v1/models/unload", {"model": "m"}, C)[0] == 403, "who watches may unload")


def descendants(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], stdout=subprocess.PIPE).stdout.split()
    return [p for child in map(int, found) for p in [child, *descendants(child)]]


def test_grammars():
    """A grammar that is there already is quick: it must not be so for who did not ask for it before."""
    with serve() as d:
        body = {"prompt": [5, 6, 7], "max_tokens": 2, "guided_regex": "[a-z ]+B's secret[a-z ]*", "timeout": 60}
        check(d.post("/v1/completions", body, B)[0] == 200, "B's grammar is refused")
        # From here on no new ones can be made.
        stopped = descendants(d.process.pid)
        check(stopped, "the model has no text process")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        status, answer = d.post("/v1/completions", body, B)
        check(status == 200, f"B's own grammar is not kept: {status} {answer}")
        status, answer = d.post("/v1/completions", {**body, "timeout": 2}, A)
        check(status != 200, f"B's grammar is used for A: {status} {answer}")
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass  # ended for the time that A's request took


def test_refused_grammars():
    """What is refused after the text process has made it is not used, and not kept: a text of it may begin in too many rules at once."""
    with serve() as d:
        n = 3000
        rules = ["root ::= " + " | ".join(f"r{i}" for i in range(n)), *(f'r{i} ::= "a" r{i + 1}' for i in range(n)),
                 f'r{n} ::= "b"']
        for _ in range(3):
            status, answer = d.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 2,
                                                        "guided_grammar": "\n".join(rules)}, A)
            check(status == 400 and "it is too complex" in str(answer),
                  f"a grammar of {n} beginnings: {status} {str(answer)[:300]}")
        check(d.metric("http_kept_bytes") == 0, "a refused grammar is kept")


# ---- what one cannot take ---------------------------------------------------------------------------


def half_sent(sockets):
    for s in sockets:
        try:
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        except OSError:
            pass  # refused
    return sockets


def test_connections():
    with serve("--max-connections=64") as d:
        held = half_sent(connect(d.path, A, n=64))
        check(until(lambda: d.metric(f'user_connections{{user="{A}"}}') == 45),
              "A has more connections than 45 of 60, or fewer")
        for uid in (B, C, 0):
            check(d.get("/version", uid)[0] == 200, f"no connection for user {uid}")
        # What is kept for administrators is there when all users have theirs.
        held += half_sent([s for uid in (B, C, 61004, 61005, 61006) for s in connect(d.path, uid, n=20)])
        check(d.get("/version", 0)[0] == 200, "root beside users who have all connections")
        # One that idles makes room for another one of its own user.
        for s in held:
            s.close()
        check(until(lambda: d.metric("http_connections") == 1), "connections stay")
        held = connect(d.path, A, n=46)
        check(d.get("/version", A)[0] == 200, "an idle connection makes no room")


def test_log():
    """Who asks often has few lines in the log, and all are counted."""
    n = 3000
    with serve() as d:
        s, = connect(d.path, A)
        for _ in range(n // 100):
            s.sendall(request_bytes("GET", "/version") * 100)
            got = b""
            while got.count(b'{"version":') < 100:
                got += s.recv(65536)
        d.get("/health", B)
        d.stop()
        log = d.log(1 << 30)
        lines = len(re.findall(rf"uid {A} pid \d+ \"GET /version", log))
        more = sum(map(int, re.findall(rf"uid {A}: (\d+) more requests", log)))
        check(f"uid {B} pid" in log, "the other user is not in the log")
        check(lines + more == n, f"{lines} lines and {more} more are not {n} requests")


def test_loads():
    with directory() as tmp:
        models = []
        for name in "ab":
            os.mkdir(f"{tmp}/{name}")
            for file in os.listdir(MODEL):
                os.symlink(f"{MODEL}/{file}", f"{tmp}/{name}/{file}")
            models.append(f"--model={name}={tmp}/{name}")
        with start(*models, FAKE_CHIP_MB="256", FAKE_WEIGHT_MB="150", FAKE_LOAD_MS="20") as d:
            # One who has models loaded in turns has to wait soon; another's request loads nevertheless.
            for i in range(100):
                body = {"prompt": "Once", "max_tokens": 1, "model": "ab"[i % 2]}
                status, answer = d.post("/v1/completions", body, A)
                if status != 200:
                    break
            check(status == 429 and "have loaded" in str(answer) and i >= 8, f"after {i} loads: {status} {answer}")
            check(d.metric(f'user_model_loads_total{{user="{A}"}}') == i, "loads are counted otherwise")
            check(d.post("/v1/completions", body, B)[0] == 200, "B's load is refused")
            check(d.post("/v1/completions", body, A)[0] == 200, "what is loaded is for A, too")


def test_impostor():
    """In a directory like /tmp somebody else may listen where the daemon is expected."""
    with directory() as tmp:
        os.chmod(tmp, 0o1777)
        run, ctl, bench = (shutil.copy(os.environ[name], tmp) for name in ("TXDA_RUN", "TXDACTL", "TXDA_BENCH"))
        for uid, trusted in ((A, False), (B, True), (0, True)):
            path = f"{tmp}/{uid}"
            child = os.fork()  # that listens, and tells by its status whether it was sent anything
            if not child:
                signal.alarm(300)
                as_user(uid)
                with socket.socket(socket.AF_UNIX) as s:
                    s.bind(path)
                    os.chmod(path, 0o666)
                    s.listen()
                    heard = 0
                    for _ in range(3):
                        with s.accept()[0] as c:
                            heard += bool(c.recv(1))
                os._exit(heard)
            check(until(lambda: os.path.exists(path) and os.stat(path).st_mode & 0o002), "nobody listens")
            for command in ([run, "--socket", path, "Hello"], [ctl, "--socket", path, "models"],
                            [bench, "serve", "--socket", path, "--model", "m", "--requests", "1"]):
                text = subprocess.run(command, user=B, group=B, extra_groups=[], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, env={**os.environ, "HOME": tmp}, cwd=tmp).stderr.decode()
                check(trusted or "another user listens" in text or "not permitted" in text, f"{command}: {text}")
            # Less than nothing: it has waited in vain for one of them.
            heard = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            check(heard == (3 if trusted else 0), f"user {uid}, who listens, was spoken to by {heard} of 3")


def main():
    if os.getuid():
        print("several users take root")
        sys.exit(77)
    for test in (test_hidden_models, test_ids, test_metrics, test_grammars, test_refused_grammars, test_connections,
                 test_log, test_loads, test_impostor):
        if test.__name__ in sys.argv[1:] or not sys.argv[1:]:
            test()
    conclude()


main()
