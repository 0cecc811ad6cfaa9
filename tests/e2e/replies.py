#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# replies.py TXDAD MODEL REPLIES - the recorded replies of each format (REPLIES/FORMAT.txt) through the daemon. Its fake
# engine says the prompt again, and each model's template makes the reply the prompt: what comes out, whole and streamed,
# must be the right calls, content, reasoning and finish_reason. The template's text alone tells the format.
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

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
             ("f", {"s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "e": {"enum": ["1", "2"]}, "u": {}}),
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


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)


def ask(connection, body):
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    if response.status != 200:
        raise SystemExit(f"{body['model']}: {response.status} {text}")
    if not body["stream"]:
        choice = json.loads(text)["choices"][0]
        return choice["message"], choice["finish_reason"]
    message, finish = {"content": "", "reasoning_content": "", "tool_calls": []}, None
    for line in text.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
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


def main():
    txdad, model, replies = sys.argv[1:]
    failed = n = 0
    with tempfile.TemporaryDirectory() as directory:
        path = directory + "/socket"
        rows, command = {}, [txdad, "--socket", path, "--load", "demand"]
        for name in SIGNS:
            reasoning, rows[name] = read_replies(f"{replies}/{name}.txt")
            make_model(model, f"{directory}/{name}", name, reasoning)
            command += ["--model", f"{name}={directory}/{name}"]
        log = open(directory + "/log", "w+")
        daemon = subprocess.Popen(command, stderr=log)
        try:
            while not os.path.exists(path) and daemon.poll() is None:
                time.sleep(0.05)
            connection = Connection(path)
            for name in rows:
                for text, *want in rows[name]:
                    ids = "#" in want[0]
                    # Arguments that never began are an empty object to clients.
                    want[0] = "|".join(call + "{}" if call.endswith(":") else call for call in want[0].split("|"))
                    for stream in False, True:
                        got = ask(connection, {"model": name, "messages": [{"role": "user", "content": text}], "tools": TOOLS,
                                               "stream": stream, "max_tokens": 1500})
                        n += 1
                        # Calls that end within the arguments of the last one were cut off.
                        finish = "tool_calls" if want[0].endswith(("}", "|f:3")) else "stop"
                        if said(got[0], ids) != want or got[1] != finish:
                            failed += 1
                            print(f"{name}, {stream=}: {text!r}\n  is {said(got[0], ids)} {got[1]}\n not {want} {finish}")
                text, calls = rows[name][0][:2]
                for limit in range(1, 12):
                    got = ask(connection, {"model": name, "messages": [{"role": "user", "content": text}], "tools": TOOLS,
                                           "stream": False, "max_tokens": limit})
                    n += 1
                    failed += got[1] != "length"
        finally:
            daemon.terminate()
            if daemon.wait() or failed:
                failed += 1
                log.seek(0)
                print(log.read()[-4000:])
    print(f"{n} replies, {failed} wrong")
    return 1 if failed or not n else 0


if __name__ == "__main__":
    sys.exit(main())
