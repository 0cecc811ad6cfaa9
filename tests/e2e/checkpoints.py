#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# checkpoints.py - what the files beside the weights say, in the forms in which checkpoints have them,
# is what the daemon does, from the checkpoint and from its case dir: copies of a fixture with other files.
import json
import os
import shutil
import subprocess

from daemon import Daemon, check, conclude, directory

FIXTURE = os.environ["FIXTURES"] + "/llama31"
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def copy(place, **files):
    """The fixture with other files: texts, or changes of JSON. A name's "__" is a slash, its last "_" the dot."""
    shutil.copytree(FIXTURE, place)
    for name, content in files.items():
        stem, end = name.replace("__", "/").rsplit("_", 1)
        path = f"{place}/{stem}.{end}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if callable(content):
            with open(path) as f:
                content = json.dumps(content(json.load(f)))
            os.unlink(path)  # it may be a link's target that is read-only
        with open(path, "w") as f:
            f.write(content)
    return place


def prompt_of(d, model, messages, **more):
    """What the template makes of it."""
    status, answer = d.post("/tokenize", {"model": model, "messages": messages, **more})
    check(status == 200, model, status, answer)
    return d.post("/detokenize", {"model": model, "tokens": answer["tokens"]})[1].get("prompt")


def check_templates(d, model):
    """With tools the template for tools, wherever it is."""
    for more, want in ({}, "plain"), ({"tools": TOOLS}, "tools: f"):
        got = prompt_of(d, model, HI, **more)
        check(got == want, model, more, got)


def check_outside(d, model):
    """A token for which the model has no row is the request's fault, wherever it comes from; others are served."""
    for route, body in (("/v1/completions", {"prompt": "a<tool>b"}), ("/v1/completions", {"prompt": ["a", "<tool>"]}),
                        ("/v1/completions", {"prompt": [5, 512]}),
                        (CHAT, {"messages": [{"role": "user", "content": "<tool>"}]})):
        status, answer = d.post(route, {"model": model, "max_tokens": 2, **body})
        check(status == 400 and "512" in answer["error"]["message"], model, body, status, answer)
    status, answer = d.post("/v1/completions", {"model": model, "prompt": "a<b", "max_tokens": 2})
    check(status == 200, model, status, answer)
    check(d.post("/tokenize", {"model": model, "prompt": "a<tool>b"})[1]["count"] == 3, "it is a token")


def check_greedy(d, model):
    """Without do_sample there is one answer, whatever the temperature beside it."""
    body = {"model": model, "prompt": "once upon", "max_tokens": 12}
    answers = {d.post("/v1/completions", body | more)[1]["choices"][0]["text"]
               for more in ({"seed": 1}, {"seed": 2}, {"seed": 3}, {"temperature": 0})}
    check(len(answers) == 1, model, answers)
    answers = {d.post("/v1/completions", body | {"seed": s, "temperature": 1})[1]["choices"][0]["text"] for s in range(4)}
    check(len(answers) > 1, model, "the request decides", answers)


def check_parts(d, model):
    """Several texts are a list to a template that takes lists, and one with line breaks to another."""
    texts = [{"type": "text", "text": text} for text in ("a", "", "b")]
    for role in "user", "system", "assistant", "tool":
        got = prompt_of(d, model, [{"role": role, "content": texts}], add_generation_prompt=False)
        check(got == ("a\n\nb" if model.startswith("strings") else "<a><><b>"), model, role, got)
    last = [*HI, {"role": "assistant", "content": texts[:2] + [{"type": "text", "text": "end"}]}]
    got = prompt_of(d, model, last, add_generation_prompt=False, continue_final_message=True)
    check(got.endswith("a\n\nend" if model.startswith("strings") else "<end"), model, "continued", got)


def add_token(tokenizer):
    tool = {**tokenizer["added_tokens"][0], "id": 512, "content": "<tool>"}
    return {**tokenizer, "added_tokens": tokenizer["added_tokens"] + [tool]}


def main():
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    lists = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
             "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}")
    parts = {
        "templates": (check_templates, {
            "chat_template_jinja": "plain",
            "additional_chat_templates__tool_use_jinja": "tools:{% for t in tools %} {{ t.function.name }}{% endfor %}"}),
        "outside": (check_outside, {"tokenizer_json": add_token, "chat_template_jinja": plain}),
        "lists": (check_parts, {"chat_template_jinja": lists}),
        "strings": (check_parts, {"chat_template_jinja": plain}),
        "greedy": (check_greedy, {"generation_config_json": lambda c: {**c, "do_sample": False, "temperature": 0.6}}),
    }
    with directory() as where:
        options = []
        for name, (_, files) in parts.items():
            model = copy(f"{where}/{name}", **files)
            subprocess.run([os.environ["TXDA_COMPILE"], "-q", model, "-o", f"{where}/{name}-case"], check=True)
            for model in name, name + "-case":
                options += ["--model", f"{model}={where}/{model}"]
        with Daemon("--cache-dir", where + "/cache", "--load", "demand", *options, model=False) as d:
            for name, (part, _) in parts.items():
                for model in name, name + "-case":
                    part(d, model)
    conclude()


main()
