#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""verify-includes.py [TREE] - what a folder of C files includes is what scripts/includes.table lets it know.

The table has a line for each folder (or for one file of it, which then has a line of its own):

    FOLDER: FOLDER...    what it may include of others

The arrows must not form a circle, and none may be unused. Headers are named as the compiler finds them, by their
names alone: of several with one name the includer's folder comes first, then its room, then what it may know.

Modules, a .c and a .h file of one name, may include each other in circles of up to KNOT modules. Driver files are
exempt: the kernel's objects refer to each other (a device to its address spaces, queues and buffers, and back).
"""
import os
import re
import subprocess
import sys

ROOMS = ("uapi", "lib", "cmodel", "libtxda", "daemon", "tools", "driver", "examples")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"]+)"|<([^>]+)>)', re.M)
KNOT = 3
PUBLIC = ("uapi", "uapi/drm", "libtxda/include")  # also included in angle brackets


def read_table(path):
    allowed, errors = {}, []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            left, colon, right = line.partition(":")
            words = right.split()
            if not colon:
                errors.append(f"{path}:{number}: no colon")
            elif left in allowed:
                errors.append(f"{path}:{number}: {left} has two lines")
            else:
                allowed[left] = words
    return allowed, errors


def find_circle(arrows):
    """A list of folders, the first of which comes again at the end; None."""
    done, way = set(), []

    def visit(folder):
        if folder in way:
            return way[way.index(folder):] + [folder]
        if folder in done:
            return None
        way.append(folder)
        for other in arrows.get(folder, ()):
            circle = visit(other)
            if circle:
                return circle
        done.add(way.pop())
        return None

    for folder in arrows:
        circle = visit(folder)
        if circle:
            return circle
    return None


def find_knots(modules):
    """Lists of modules that all include each other, directly or not; Tarjan's algorithm."""
    number, lowest, stack, knots = {}, {}, [], []

    def visit(module):
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(modules[module]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            knots.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(modules):
        if module not in number:
            visit(module)
    return knots


def find_header(name, file, headers, may):
    """The file that `name` stands for in `file`; None: it is none of ours."""
    folder, room = os.path.dirname(file), file.split("/")[0]
    beside = os.path.normpath(os.path.join(folder, name))
    found = [h for h in headers.get(os.path.basename(name), ()) if h == name or h.endswith("/" + name)]
    if beside in headers.get(os.path.basename(name), ()):
        return beside
    for wanted in (lambda h: os.path.dirname(h) in may and h.startswith(room + "/"), lambda h: h.startswith(room + "/"),
                   lambda h: os.path.dirname(h) in may, lambda h: True):
        for header in found:
            if wanted(header):
                return header
    return None


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    table = os.path.join(here, "includes.table")
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(here))
    allowed, errors = read_table(table)
    circle = find_circle({os.path.dirname(f) if f.endswith(".c") else f: to for f, to in allowed.items()})
    if circle:
        errors.append("a circle of folders: " + " -> ".join(circle))
    listed = subprocess.run(["find", *(room for room in ROOMS if os.path.isdir(room)), "-name", "*.[ch]"],
                            stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    headers = {}
    for file in sorted(listed):
        headers.setdefault(os.path.basename(file), []).append(file)
    used = set()
    modules = {os.path.splitext(file)[0]: set() for file in listed if not file.startswith("driver/")}
    for file in sorted(listed):
        folder = os.path.dirname(file)
        if folder not in allowed:
            errors.append(f"{file}: {folder} has no line in the table")
            continue
        may = allowed[folder] + allowed.get(file, [])
        with open(file, encoding="utf-8") as text:
            names = INCLUDE.findall(text.read())
        for quoted, angled in names:
            header = find_header(quoted or angled, file, headers, may)
            if angled and (not header or os.path.dirname(header) not in PUBLIC):
                continue
            to = os.path.dirname(header) if header else folder
            used.update({(folder, to), (file, to)})
            module, other = os.path.splitext(file)[0], os.path.splitext(header or "")[0]
            if module in modules and other in modules and other != module:
                modules[module].add(other)
            if to != folder and to not in may:
                errors.append(f"{file}: {folder} may not know {to}: {header}")
    errors += [f"includes.table: {a} includes nothing of {b}" for a, may in allowed.items() for b in may
               if (a, b) not in used]
    errors += [f"a knot of {len(knot)} modules, the limit is {KNOT}: " + " ".join(knot)
               for knot in find_knots(modules) if len(knot) > KNOT]
    print("\n".join(errors) or f"{len(listed)} files")
    return 1 if errors else 0


sys.exit(main())
