#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""verify-unused.py [TREE] - every function in user space is called by a program, not only by tests.

A function is used if main(), an initialiser, a macro or another used function names it, or if it is public (PUBLIC).
Functions of one name count as one. The script relies on the layout that clang-format gives: the body of a function
begins and ends with a brace in the first column.
"""
import os
import re
import subprocess
import sys

# Not driver/: the kernel's macros make names of parts.
ROOMS = ("uapi", "lib", "cmodel", "libtxda", "daemon", "tools", "examples")
PUBLIC = "libtxda/include/txda.h"

NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
SKIPPED = re.compile(r"^[ \t]*#[ \t]*(?:include|if|ifdef|ifndef|elif|undef|error)\b[^\n]*", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
BODY = re.compile(r"^\{\n.*?^\}", re.M | re.S)
HEAD = re.compile(r"([A-Za-z_]\w*)\s*" + ARGUMENTS + r"\s*$")
DECLARATION = re.compile(r"^[A-Za-z_][^;{}=#()]*\b[A-Za-z_]\w*\s*" + ARGUMENTS + r"\s*;", re.M)
WORD = re.compile(r"[A-Za-z_]\w*")


def read(path):
    """The code without comments, strings, attributes and conditions."""
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    return ATTRIBUTE.sub(" ", SKIPPED.sub("", NOISE.sub(" ", text)))


def functions(text):
    """The (name, body) of each function, and the code outside of functions without declarations."""
    found, outside, last = [], [], 0
    for body in BODY.finditer(text):
        before = text[last:body.start()]
        start = max(before.rfind(mark) for mark in (";", "}", "\n\n")) + 1
        head = HEAD.search(" ".join(line for line in before[start:].split("\n") if not line.startswith("#")))
        if head:
            found.append((head.group(1), body.group()))
            before = before[:start] + "\n".join(l for l in before[start:].split("\n") if l.startswith("#"))
        else:
            before += body.group()
        outside.append(before)
        last = body.end()
    outside.append(text[last:])
    return found, DECLARATION.sub(" ", "\n".join(outside))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here))
    listed = subprocess.run(["find", *(room for room in ROOMS if os.path.isdir(room)), "-name", "*.[ch]"],
                            stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    places, words, wanted = {}, {}, ["main"]
    for file in sorted(listed):
        text = read(file)
        if file == PUBLIC:
            wanted += WORD.findall(text)
        found, outside = functions(text)
        wanted += WORD.findall(outside)
        for name, body in found:
            places.setdefault(name, []).append(file)
            words.setdefault(name, set()).update(WORD.findall(body))
    used = set()
    while wanted:
        name = wanted.pop()
        if name in words and name not in used:
            used.add(name)
            wanted += words[name]
    errors = [f"{' '.join(places[name])}: no program calls {name}()" for name in sorted(set(words) - used)]
    print("\n".join(errors) or f"{len(words)} functions")
    return 1 if errors else 0


sys.exit(main())
