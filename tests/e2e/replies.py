#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# replies.py - recorded replies of each format (tests/unit/replies/FORMAT.txt, of which
# test_reply_parser reads all) through the daemon. Its fake engine says the prompt again, and each
# model's template makes the reply the prompt: what comes out, whole and streamed, must be the right
# calls, content, reasoning and finish_reason. The template's text alone tells the format.
import os

from daemon import MODEL, Daemon, check, conclude, directory

# What stands in the templates of such models.
SIGNS = {
    "hermes": "<tool_call>", "llama3_json": "<|python_tag|>", "pythonic": "func_name1(params_name1",
    "deepseek_v3": "<｜tool▁calls▁begin｜>", "deepseek_v32": "｜DSML｜", "mistral": "[TOOL_CALLS] [ARGS]",
    "mistral_list": "[TOOL_CALLS]", "glm45": "<arg_key> <arg_value>", "glm4": "<|observation|>",
    "internlm": "<|action_start|><|plugin|>", "kimi_k2": "<|tool_calls_section_begin|>",
    "qwen3_coder": "<function= <parameter=", "gpt_oss": "<|channel|>analysis <|call|>",
}
THINK = {"mistral": "[/THINK]", "gpt_oss": ""}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
         for name, properties in (
             ("f", {"s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"},
                    "e": {"enum": ["1", "2"]}, "u": {}}),
             ("g", {}), ("get.weather-now_2", {"city": {"type": "string"}}))]


def unescape(text):
    out, i = "", 0
    while i < len(text):
        step = 2 if text[i] == "\\" else 1
        out += {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}.get(text[i:i + 2], "") if step == 2 else text[i]
        i += step
    return out


def read_replies(path):
    with open(path) as f:
        _, name, reasoning = f.readline().split()
        rows = [[unescape(part) for part in line.rstrip("\n").split("\t")] for line in f]
    return reasoning, [row + [""] * (4 - len(row)) for row in rows]


def make_model(source, path, name, reasoning):
    os.mkdir(path)
    for file in os.listdir(source):
        if not file.startswith("chat_template"):
            os.symlink(os.path.join(source, file), os.path.join(path, file))
    with open(path + "/chat_template.jinja", "w") as f:
        f.write("{%- if messages is string %}" + SIGNS[name] + THINK.get(reasoning, "</think>") + "{{ tools }}{%- endif %}"
                "{{- messages[0].content }}<|im_end|>")


def ask(d, body):
    if not body["stream"]:
        choice = d.post("/v1/chat/completions", body)[1]["choices"][0]
        return choice["message"], choice["finish_reason"]
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for event in list(d.stream("/v1/chat/completions", body))[:-1]:
        for choice in event["choices"]:
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            for key in "content", "reasoning_content":
                message[key] += delta.get(key) or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "function": {"name": "", "arguments": ""}})
                for key, value in call["function"].items():
                    message["tool_calls"][call["index"]]["function"][key] += value
    return message, finish


def said(message, ids):
    calls = "".join(f"|{c['function']['name']}{'#' + c['id'] if ids else ''}:{c['function']['arguments']}"
                    for c in message.get("tool_calls") or [])
    return [calls, message.get("content") or "", message.get("reasoning_content") or ""]


def check_format(d, name, rows):
    for text, *want in rows:
        ids = "#" in want[0]
        # Arguments that never began are an empty object to clients.
        want[0] = "|".join(call + "{}" if call.endswith(":") else call for call in want[0].split("|"))
        # Calls that end within the arguments of the last one were cut off.
        finish = "tool_calls" if want[0].endswith(("}", "|f:3", "|f:nul", "|f:nulls")) else "stop"
        body = {"model": name, "messages": [{"role": "user", "content": text}], "tools": TOOLS, "max_tokens": 1500}
        for stream in False, True:
            message, ended = ask(d, {**body, "stream": stream})
            check(said(message, ids) == want and ended == finish,
                  f"{name}, {stream=}: {text!r}\n  is {said(message, ids)} {ended}\n not {want} {finish}")
    for limit in range(1, 12):
        body = {"model": name, "messages": [{"role": "user", "content": rows[0][0]}], "tools": TOOLS, "max_tokens": limit}
        check(ask(d, {**body, "stream": False})[1] == "length", f"{name}: {limit} tokens")


def main():
    replies = os.path.dirname(__file__) + "/../unit/replies"
    with directory() as where:
        rows, options = {}, ["--load", "demand"]
        for name in SIGNS:
            reasoning, rows[name] = read_replies(f"{replies}/{name}.txt")
            make_model(MODEL, f"{where}/{name}", name, reasoning)
            options += ["--model", f"{name}={where}/{name}"]
        with Daemon(*options, model=False, env={"FAKE_TOKEN_US": "0"}) as d:
            for name in rows:
                check_format(d, name, rows[name])
    conclude()


main()
