#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# answers.py - what answers of the demo model say besides their text, whole and streamed: the log
# probabilities of a prompt and of all that was generated, and how much of a prompt was cached.
import json

from daemon import Daemon, check, conclude

COLUMNS = "tokens", "token_logprobs", "top_logprobs", "text_offset"
FOX = {"prompt": "The fox was so", "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}


def ask(d, path, body):
    status, answer = d.post(path, body)
    check(status == 200, body, status, answer)
    return answer


def complete(d, body):
    """A completion's choice and usage; streamed, its parts must add up to the same."""
    answer = ask(d, "/v1/completions", body)
    choice, usage = answer["choices"][0], answer["usage"]
    text, columns, parts = "", {key: [] for key in COLUMNS}, usage
    for event in list(d.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}}))[:-1]:
        parts = event.get("usage") or parts
        for part in event.get("choices", []):
            text += part["text"]
            for key in COLUMNS:
                columns[key] += (part["logprobs"] or {}).get(key) or []
    whole = {key: (choice["logprobs"] or {}).get(key) or [] for key in COLUMNS}
    check(text == choice["text"] and columns == whole and parts["completion_tokens"] == usage["completion_tokens"],
          body, "streamed", text, columns, "whole", answer)
    return choice, usage


def check_prompt(d):
    """Every token of an echoed prompt but the first has the best ones at its place, and itself."""
    for n in 1, 2, 20:
        logprobs = complete(d, {**FOX, "logprobs": n})[0]["logprobs"]
        check(logprobs["top_logprobs"][0] is None and logprobs["token_logprobs"][0] is None, "the first", logprobs)
        for token, own, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]))[1:]:
            check(top and top.get(token) == own and 0 < len(top) <= n + 1 and max(top.values()) >= own, n, token, own, top)
    forks = ask(d, "/v1/completions", {**FOX, "n": 3})["choices"]
    check(all(f["logprobs"]["top_logprobs"][1:] for f in forks) and
            len({json.dumps(f["logprobs"]["top_logprobs"][:4]) for f in forks}) == 1, "forks", forks)
    none = complete(d, {**FOX, "logprobs": 0})[0]["logprobs"]
    check(none["top_logprobs"] is None, "no best ones were requested", none)


def check_ends(d):
    """A completion has an entry for every token that is counted, also for one that ended it."""
    end = complete(d, {**FOX, "logit_bias": {"2": 100}})
    check(end[0]["finish_reason"] == "stop" and end[0]["text"] == FOX["prompt"] and
            end[0]["logprobs"]["tokens"][4:] == ["<|im_end|>"] and end[0]["logprobs"]["text_offset"][4:] == [14],
            "an end token", end)
    long = {**FOX, "echo": False, "max_tokens": 90}
    for more in ({}, {"stop": " king"}, {"stop": "castle and"}, {"stop": "zzz"},
                 {"stop": [" he went"], "include_stop_str_in_output": True},
                 {"stop": " pleased"}, {"logit_bias": {"2": 100}}, {"max_tokens": 0, "echo": True}):
        choice, usage = complete(d, {**long, **more})
        lengths = {key: len(choice["logprobs"][key]) for key in COLUMNS}
        n = usage["completion_tokens"] + 4 * ("echo" in more)
        check(set(lengths.values()) == {n}, more, lengths, usage)
        offsets = choice["logprobs"]["text_offset"]
        check(offsets == sorted(offsets), more, offsets)


def check_offsets(d):
    """Where tokens begin in the text: special ones that the echo omits take no place in it."""
    body = {"echo": True, "logprobs": 1, "max_tokens": 2, "temperature": 0}
    for more, want in (({"prompt": [1, 464, 2, 300]}, [0, 0, 2, 2]),
                       ({"prompt": [1, 464, 2, 300], "skip_special_tokens": False}, [0, 12, 14, 24]),
                       ({"prompt": "<|im_start|>The fox"}, [0, 12, 15]), ({"prompt": "The fox"}, [0, 3])):
        choice, usage = complete(d, {**body, **more})
        logprobs = choice["logprobs"]
        check(logprobs["text_offset"][:len(want)] == want, more, choice)
        # What was generated is found where it is said to be.
        for token, at in list(zip(logprobs["tokens"], logprobs["text_offset"]))[len(want):]:
            check(choice["text"][at:at + len(token)] == token, more, token, at, choice)


def check_empty(d):
    """Requested log probabilities are an object, even if there is nothing to show."""
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3, "logit_bias": {"2": 100}}
    got = ask(d, "/v1/chat/completions", {**chat, "logprobs": True})["choices"][0]["logprobs"]
    check(got == {"content": [], "refusal": None}, "an empty chat", got)
    got = ask(d, "/v1/chat/completions", chat)["choices"][0]["logprobs"]
    check(got is None, "a chat without", got)
    got = ask(d, "/v1/completions", {"prompt": "Once", "max_tokens": 1})["choices"][0]["logprobs"]
    check(got is None, "a completion without", got)


def check_salts(d):
    """A client may ask for several people: with different salts none of them finds what is kept for another."""
    body = {"prompt": list(range(5, 105)), "max_tokens": 2}
    cached = []
    for salt in "x", "x", "y", None, "x":
        answer = ask(d, "/v1/completions", body | ({"cache_salt": salt} if salt else {}))
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    check(cached[1] > 0 and cached == [0, cached[1], 0, 0, cached[1]], "cached with the salts x, x, y, none, x:", cached)
    for salt in "", 5, ["x"]:
        status, answer = d.post("/v1/completions", body | {"cache_salt": salt})
        check(status == 400 and answer["error"]["param"] == "cache_salt", "the salt", salt, status, answer)


def main():
    with Daemon("--load", "demand", "--tool-call-parser", "hermes") as d:
        for part in check_prompt, check_ends, check_offsets, check_empty, check_salts:
            part(d)
    conclude()


main()
