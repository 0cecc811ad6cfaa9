#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# loop.py - what the event loop of the daemon (with the fake engine) does itself while clients ask
# for answers of many megabytes, forms that are hard to follow and models that are not loaded: it
# moves bytes. Asserted is how much JSON it writes, and that small requests are answered meanwhile.
# Then: memory counts when it is held, not when it might be; all who waited for a model are answered
# when it is there, and what runs is answered when the daemon stops.
import contextlib
import json
import re
import threading

from daemon import MODEL, Daemon, at_once, check, conclude, raw_request, read_answer, until

HEAVY = {"max_tokens": 400, "ignore_eos": True, "n": 64}
MODELS = [f"--model={name}={MODEL}" for name in "bcd"]


@contextlib.contextmanager
def loaded(*options, **env):
    with Daemon("--load=demand", *MODELS, *options, env=env) as d:
        check(d.post("/v1/completions", {"prompt": "Once", "max_tokens": 1})[0] == 200, "the first model cannot be loaded")
        yield d


def test_loop():
    chat = {"messages": [{"role": "user", "content": "A tale."}], "logprobs": True, "top_logprobs": 20, **HEAVY}
    hard = {"prompt": "Once", "max_tokens": 50, "guided_regex": "((a|b|ab|ba)*(a|aa|aaa)*){8}(x|.*y.{40})z", "n": 4}
    bodies = [("/v1/chat/completions", chat), ("/v1/chat/completions", {**chat, "stream": True}),
              ("/v1/completions", {"prompt": "Once", "logprobs": 5, **HEAVY}),
              ("/v1/embeddings", {"input": ["tale %d" % i for i in range(2048)]}), ("/v1/completions", hard)]
    bodies += [("/v1/completions", {"model": name, "prompt": "Once", "max_tokens": 3}) for name in "bcd"]
    with loaded(FAKE_TOKEN_US="100", FAKE_HIDDEN="4096") as d:
        before, asked, answers = d.metric("event_loop_json_bytes_total"), 0, []
        crew = threading.Thread(target=lambda: answers.extend(at_once([lambda b=b: d.call("POST", *b)
                                                                       for b in bodies], len(bodies))))
        crew.start()
        while crew.is_alive():
            status, data = d.get("/version")
            check(status == 200 and b"version" in data, f"/version: {status} {data}")
            asked += 1
        crew.join()
        written = d.metric("event_loop_json_bytes_total") - before
        for (path, body), (status, _, data) in zip(bodies, answers):
            check(status == 200 or (body is hard and status == 400), f"{path}: {status} {data[:300]}")
        check(sum(len(data) for _, _, data in answers) > 100e6, "the answers are small")
        # Its own are those to /version, two times the metrics, and errors.
        check(written < 100 * asked + 50000, f"the event loop wrote {written:.0f} bytes of JSON")


def test_memory():
    # It might take 400 MB, but does not: it ends where its text does.
    body = {"messages": [{"role": "user", "content": "A tale."}], "logprobs": True, "top_logprobs": 20, "n": 64}
    with loaded("--max-memory=64M", FAKE_TOKEN_US="0") as d:
        def ask(route="/v1/chat/completions", **more):
            status, _, data = d.call("POST", route, {**(body if "chat" in route else {}), **more})
            return status, data
        status, data = ask(stop=["a", "e", "t"])
        check(status == 200 and len(json.loads(data)["choices"]) == 64, f"an answer that ends soon: {status} {data[:300]}")
        status, data = ask(stream=True, max_tokens=100)
        check(status == 200 and data.endswith(b"[DONE]\n\n") and b'"error"' not in data, f"a stream: {status} {data[-300:]}")
        # What was asked for in so many words must be possible.
        status, data = ask(max_tokens=1900)
        check(status == 400 and b"may need" in data, f"an answer that cannot be: {status} {data[:300]}")
        # The prompt counts once more for each choice that repeats it.
        sizes = []
        for echo in (False, True):
            status, data = ask("/v1/completions", prompt="Once upon a time", echo=echo, logprobs=5, n=64, max_tokens=1900)
            found = re.search(rb"may need (\d+) bytes", data)
            check(status == 400 and found, f"an answer that cannot be, echo {echo}: {status} {data[:300]}")
            sizes.append(int(found[1]) if found else 0)
        check(sizes[1] >= sizes[0] + 64 * len("Once upon a time".split()), f"without and with the prompt: {sizes} bytes")
        # This one does take it, and is ended; who is beside it is not.
        status, data = ask(ignore_eos=True)
        check(status == 429 and b"most of them" in data, f"an answer that grows: {status} {data[:300]}")
        status, data = ask("/v1/completions", prompt="Once", max_tokens=5)
        check(status == 200, f"behind it: {status} {data[:300]}")
        check(until(lambda: d.held() <= 4096), f"{d.held():.0f} bytes are held by nobody")


def test_parked():
    """More requests of one user wait for a model than the text workers let in at a time: all are answered."""
    with loaded(FAKE_LOAD_MS="2000") as d:
        clients = []
        for i in range(900):
            # What is read at a time is limited, too: the second half comes when the first one has been read.
            if i == 450:
                check(until(lambda: b'"reading"' not in d.get("/v1/requests")[1]), "they are not read")
            clients.append(raw_request(d.path, "/v1/completions", {"model": "b", "prompt": "Once", "max_tokens": 1}))
        statuses = [read_answer(s)[0] for s in clients]
        check(statuses == [200] * 900, f"answers to those who waited: {set(statuses)}")


def test_ends():
    """A request whose inputs do not all go into the engine at once is answered when the daemon is to stop, or its model to go."""
    for end in ("stop", "unload"):
        with loaded("--data-parallel-size=2", FAKE_TOKEN_US="20000", FAKE_CHIPS="2") as d:
            s = raw_request(d.path, "/v1/embeddings", {"model": "d", "input": ["tale %d" % i for i in range(300)]})
            check(until(lambda: b'"running":64' in d.get("/v1/requests")[1]), "the request does not run")
            if end == "stop":
                d.process.terminate()
            else:
                check(d.post("/v1/models/unload", {"model": "d"})[0] == 200, "the model is not unloaded")
            status, data = read_answer(s)
            check(status == 200, f"what ran at the {end}: {status} {data[:300]}")


def test_queue():
    """More answers than may wait can never be: that is the request's mistake."""
    with loaded("--max-queue=4") as d:
        for body in ({"n": 5}, {"n": 2, "best_of": 5}):
            status, answer = d.post("/v1/completions", {"prompt": "Once", "max_tokens": 2, **body})
            check(status == 400 and "the limit of waiting requests is 4" in str(answer), f"{body}: {status} {answer}")
        check(d.post("/v1/completions", {"prompt": "Once", "max_tokens": 2, "n": 4})[0] == 200, "as many as may wait")


for test in test_loop, test_memory, test_parked, test_ends, test_queue:
    test()
conclude()
