#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test-targets.py BUILD SUITE - the files that tests of this suite need, one a line, as ninja names them."""
import json
import os
import subprocess
import sys

build, suite = sys.argv[1:]


def introspect(what):
    return json.loads(subprocess.run(["meson", "introspect", build, what], check=True, stdout=subprocess.PIPE).stdout)


wanted = set()
for test in introspect("--tests"):
    if any(name.split(":")[-1] == suite for name in test["suite"]):
        wanted.update(test["depends"])
for target in introspect("--targets"):
    if target["id"] in wanted:
        for name in target["filename"]:
            print(os.path.relpath(name, os.path.realpath(build)))
