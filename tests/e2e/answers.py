#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# answers.py TXDAD MODEL - what answers of the demo model say besides their text, whole and streamed: the log
# probabilities of a prompt and of all that was generated.
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

COLUMNS = "tokens", "token_logprobs", "top_logprobs", "text_offset"
FOX = {"prompt": "The fox was so", "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


class Client:
    def __init__(self, path):
        self.connection = Connection(path)
        self.failed = 0

    def check(self, ok, *what):
        if not ok:
            self.failed += 1
            print("FAIL:", *what)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        return response.status, response.read().decode()

    def ask(self, path, body):
        status, text = self.post(path, body)
        self.check(status == 200, body, status, text)
        return json.loads(text) if status == 200 else {}

    def complete(self, body):
        """A completion's choice and usage; streamed, its parts must add up to the same."""
        answer = self.ask("/v1/completions", body)
        choice, usage = answer["choices"][0], answer["usage"]
        status, stream = self.post("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
        text, columns, parts = "", {key: [] for key in COLUMNS}, usage
        for line in stream.split("\n\n"):
            event = json.loads(line[6:]) if line.startswith("data: {") else {}
            parts = event.get("usage") or parts
            for part in event.get("choices", []):
                text += part["text"]
                for key in COLUMNS:
                    columns[key] += (part["logprobs"] or {}).get(key) or []
        whole = {key: (choice["logprobs"] or {}).get(key) or [] for key in COLUMNS}
        self.check(status == 200 and text == choice["text"] and columns == whole and
                   parts["completion_tokens"] == usage["completion_tokens"], body, "streamed", text, columns, "whole", answer)
        return choice, usage


def check_prompt(c):
    """Every token of an echoed prompt but the first has the best ones at its place, and itself."""
    for n in 1, 2, 20:
        logprobs = c.complete({**FOX, "logprobs": n})[0]["logprobs"]
        c.check(logprobs["top_logprobs"][0] is None and logprobs["token_logprobs"][0] is None, "the first", logprobs)
        for token, own, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
            c.check(top and top.get(token) == own and 0 < len(top) <= n + 1 and max(top.values()) >= own, n, token, own, top)
    forks = c.ask("/v1/completions", {**FOX, "n": 3})["choices"]
    c.check(all(f["logprobs"]["top_logprobs"][1:] for f in forks) and
            len({json.dumps(f["logprobs"]["top_logprobs"][:4]) for f in forks}) == 1, "forks", forks)
    none = c.complete({**FOX, "logprobs": 0})[0]["logprobs"]
    c.check(none["top_logprobs"] is None, "no best ones were requested", none)


def check_ends(c):
    """A completion has an entry for every token that is counted, also for one that ended it."""
    end = c.complete({**FOX, "logit_bias": {"2": 100}})
    c.check(end[0]["finish_reason"] == "stop" and end[0]["text"] == FOX["prompt"] and
            end[0]["logprobs"]["tokens"][4:] == ["<|im_end|>"] and end[0]["logprobs"]["text_offset"][4:] == [14], "an end token", end)
    long = {**FOX, "echo": False, "max_tokens": 90}
    for more in ({}, {"stop": " king"}, {"stop": "castle and"}, {"stop": "zzz"}, {"stop": [" he went"], "include_stop_str_in_output": True},
                 {"stop": " pleased"}, {"logit_bias": {"2": 100}}, {"max_tokens": 0, "echo": True}):
        choice, usage = c.complete({**long, **more})
        lengths = {key: len(choice["logprobs"][key]) for key in COLUMNS}
        n = usage["completion_tokens"] + 4 * ("echo" in more)
        c.check(set(lengths.values()) == {n}, more, lengths, usage)
        offsets = choice["logprobs"]["text_offset"]
        c.check(offsets == sorted(offsets), more, offsets)


def check_offsets(c):
    """Where tokens begin in the text: special ones that the echo omits take no place in it."""
    body = {"echo": True, "logprobs": 1, "max_tokens": 2, "temperature": 0}
    for more, want in (({"prompt": [1, 464, 2, 300]}, [0, 0, 2, 2]), ({"prompt": [1, 464, 2, 300], "skip_special_tokens": False}, [0, 12, 14, 24]),
                       ({"prompt": "<|im_start|>The fox"}, [0, 12, 15]), ({"prompt": "The fox"}, [0, 3])):
        choice, usage = c.complete({**body, **more})
        logprobs = choice["logprobs"]
        c.check(logprobs["text_offset"][:len(want)] == want, more, choice)
        # What was generated is found where it is said to be.
        for token, at in list(zip(logprobs["tokens"], logprobs["text_offset"]))[len(want):]:
            c.check(choice["text"][at:at + len(token)] == token, more, token, at, choice)


def check_empty(c):
    """Requested log probabilities are an object, even if there is nothing to show."""
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "logit_bias": {"2": 100}}
    got = c.ask("/v1/chat/completions", {**chat, "logprobs": True})["choices"][0]["logprobs"]
    c.check(got == {"content": [], "refusal": None}, "an empty chat", got)
    got = c.ask("/v1/chat/completions", chat)["choices"][0]["logprobs"]
    c.check(got is None, "a chat without", got)
    got = c.ask("/v1/completions", {"prompt": "Once", "max_tokens": 1})["choices"][0]["logprobs"]
    c.check(got is None, "a completion without", got)


def main():
    txdad, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        path, log = directory + "/socket", open(directory + "/log", "w+")
        daemon = subprocess.Popen([txdad, "--socket", path, "--model", "demo=" + model, "--tool-call-parser", "hermes",
                                   "--load", "demand"], stderr=log)
        client = Client(path)
        try:
            while not os.path.exists(path) and daemon.poll() is None:
                time.sleep(0.05)
            check_prompt(client)
            check_ends(client)
            check_offsets(client)
            check_empty(client)
        finally:
            daemon.terminate()
            ended = daemon.wait()
            if ended or client.failed:
                log.seek(0)
                print(log.read()[-4000:])
    return 1 if client.failed or ended else 0


if __name__ == "__main__":
    sys.exit(main())
