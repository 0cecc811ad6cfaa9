#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
names.py SOURCE BUILD - what documents name must exist, and what exists must be documented: links and their anchors, files, options
(those of manual pages and --help are the same ones, in both directions), programs, pages that others refer to, settings in examples.
Each complaint begins with FILE:LINE.
"""
import errno
import os
import pathlib
import re
import subprocess
import sys

source, build = (pathlib.Path(arg) for arg in sys.argv[1:])
documents = [source / "README.md", source / "CONTRIBUTING.md", *sorted((source / "docs").glob("*.md")), *sorted((source / "tests").glob("*/**/README.md"))]
pages = sorted((source / "docs/man").glob("*.[1-8]"))
programs = sorted(p.name for p in (build / "bin").iterdir() if p.is_file())
failures = []


def complain(path, line, what):
    failures.append(f"{path.relative_to(source)}:{line}: {what}")


def options_in(text):
    """Long options; --[no-]NAME is two."""
    text = re.sub(r"--\[no-\]([a-z][a-z0-9-]*)", r"--\1 --no-\1", text)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", text))


def help_of(program):
    """What --help of the program and of its commands says."""
    commands = {"txda-bench": [[], ["model"], ["serve"], ["device"]]}.get(program, [[]])
    return "".join(subprocess.run([build / "bin" / program, *words, "--help"], capture_output=True, text=True, check=True).stdout
                   for words in commands)


helps = {program: options_in(help_of(program)) | {"--help"} for program in programs}
all_options = set().union(*helps.values())
# Of other programs' options documents name these.
foreign_options = {"--unix-socket", "--group-add", "--suite", "--no-suite", "--setup", "--list", "--force", "--all", "--import", "--test-key", "--sb-state", "--list-enrolled"}


def prose(path):
    """Lines without blocks, whose commands commands.sh runs."""
    block = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            block = not block
        elif not block:
            yield number, line


def anchors(path):
    """As the forges make them from headings."""
    return {re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
            for _, line in prose(path) if line.startswith("#")}


def check_link(path, line, target):
    name, _, anchor = target.partition("#")
    there = path.parent / name if name else path
    if not there.exists():
        complain(path, line, f"the link {target} leads to no file")
    elif anchor and anchor not in anchors(there):
        complain(path, line, f"the link {target} leads to no heading")


def check_file(path, line, word):
    """A path within the tree or the build; NAME and * stand for many."""
    if word.split("/")[0] in rooms and not list(source.glob(re.sub(r"[A-Z]{3,}(?=[._])", "*", word.rstrip("/")))) \
            and not list(path.parent.glob(word)) and not (build / word).exists():
        complain(path, line, f"there is no {word}")


rooms = {p.name for p in source.iterdir() if p.is_dir() and p.name != "build"}


def check_document(path):
    for number, line in prose(path):
        for target in re.findall(r"\]\(([^)]*)\)", line):
            if "://" not in target:
                check_link(path, number, target)
        for code in re.findall(r"`([^`]+)`", line):
            for word in code.split():
                if re.fullmatch(r"[\w*.-]+/[\w/*.-]*", word):
                    check_file(path, number, word)
            for option in options_in(code) - all_options - foreign_options:
                complain(path, number, f"no program has the option {option}: {code}")


def plain(line):
    """A line of a manual page without fonts and escapes."""
    line = re.sub(r"\\f[PBIR]|\"", "", line.replace("\\-", "-"))
    # mdoc: "Fl -tp" is --tp.
    return re.sub(r"\bFl -", " --", line)


def page_names(path):
    """What a page is about, as man finds it: the words before the dash in its section NAME."""
    text = re.search(r"^\.S[Hh] \"?NAME\"?\n(.*?)^\.S[Hh]", path.read_text(), re.M | re.S).group(1)
    text = re.sub(r"^\.Nd", "- ", re.sub(r"^\.Nm", "", text, flags=re.M), flags=re.M)
    return {(name, path.suffix[1:]) for name in [path.stem, *re.findall(r"[\w-]+", plain(text).split(" - ")[0])]}


all_pages = set().union(*map(page_names, pages))


def references(line):
    """Other pages, as NAME (8), or in mdoc as .Xr NAME 8."""
    return re.findall(r"([\w-]+) \((\d)\)", plain(line)) + re.findall(r"^\.Xr (\S+) (\d)", line)


def check_option(path, lines, number, option):
    """An option is the program's own, or that of another one whose page is named right there; in pages without program, anyone's."""
    program = path.stem
    near = {name for line in lines[max(number - 4, 0):number + 3] for name, _ in references(line)}
    if program not in programs:
        near = set(programs)
    if not any(option in helps.get(name, ()) for name in near | {program}):
        complain(path, number, f"{program} --help does not know {option}")


def check_page(path):
    """Blocks are command lines, which commands.sh runs, or settings: a line each, named as options."""
    program = path.stem
    lines = path.read_text().splitlines()
    named = set()
    block = settings = False
    for number, line in enumerate(lines, 1):
        if re.match(r"\.(nf|EX|Bd|fi|EE|Ed)\b", line):
            block = not block
            settings = settings and block
        elif line.startswith('.\\" no commands: a file of settings'):
            settings = True
        elif block and settings and line:
            setting = plain(line).split("=")[0].strip()
            if "--" + setting not in helps[program]:
                complain(path, number, f"{program} has no setting {setting}")
        elif not block and not line.startswith('.\\"'):
            for reference in references(line):
                if reference[0].startswith("txd") and reference not in all_pages:
                    complain(path, number, f"there is no page {reference[0]}({reference[1]})")
            options = options_in(plain(line))
            named |= options
            for option in options:
                check_option(path, lines, number, option)
    for option in helps.get(program, set()) - named - {"--help", "--version"}:
        complain(path, 1, f"{program} --help knows {option}, this page does not")


def check_programs():
    """Each program has its page and its place in the architecture; overviews and completions have those that are installed."""
    built_only = set(re.findall(r"'([\w-]+)': \{[^}]*'install': false", "".join(p.read_text() for p in (source / "tools").glob("*/meson.build"))))
    overviews = [source / "docs/man/txda.7", source / "docs/architecture.md",
                 source / "packaging/completions/txda.bash", source / "packaging/completions/_txda",
                 source / "packaging/meson.build"]
    for program in programs:
        if not list((source / "docs/man").glob(f"{program}.[18]")):
            complain(source / "docs/man/txda.7", 1, f"{program} has no page")
        for overview in overviews:
            last = program.removeprefix("txda-") if overview.name == "meson.build" else program
            named = re.search(rf"(?<![\w-]){last}(?![\w-])", plain(overview.read_text()))
            wanted = program not in built_only or overview.name == "architecture.md"
            if bool(named) != wanted:
                complain(overview, 1, f"{program} is {'not ' * wanted}named here")


def check_messages():
    """The headings of troubleshooting.md are messages of ours, with an ellipsis for what differs; those of the kernel say so."""
    path = source / "docs/troubleshooting.md"
    text = "".join(p.read_text() for room in ("daemon", "lib", "libtxda/src", "tools") for p in sorted((source / room).rglob("*.c")))
    text = re.sub(r'"\s*\n\s*"', "", text).replace('\\"', '"')
    messages = 0
    for number, line in prose(path):
        heading = re.fullmatch(r"### `(.*)`( \(kernel\))?", line)
        if line.startswith("###") and not heading:
            complain(path, number, "a heading here is a message: ### `message`, and (kernel) if it is the kernel's")
        elif heading and not heading.group(2):
            messages += 1
            for part in heading.group(1).split("…"):
                if part.strip() not in text and part.removeprefix(": ") not in map(os.strerror, errno.errorcode):
                    complain(path, number, f"no program says: {part.strip()}")
    if not messages:
        complain(path, 1, "no message is explained")


def check_functions():
    """Each function of the library is in the NAME of a page, and each name there is a function of it or the page's."""
    exported = set(re.findall(r"\btxda_\w+(?=;)", (source / "libtxda/libtxda.map").read_text()))
    documented = {name for name, section in all_pages if section == "3"}
    for name in exported - documented:
        complain(source / "libtxda/libtxda.map", 1, f"no page is about {name}()")
    for path in pages:
        if path.suffix == ".3":
            for name, _ in page_names(path) - {(path.stem, "3")}:
                if name not in exported:
                    complain(path, 1, f"the library has no function {name}()")


def check_paths():
    """Tables of files and functions: each file is the daemon's and has the functions; as many files as the text before says."""
    path = source / "docs/architecture.md"
    words = {"twelve": 12, "eight": 8}
    counted = []
    files, promised = None, None
    for number, line in enumerate(path.read_text().splitlines() + [""], 1):
        said = re.search(rf"\bhas ({'|'.join(words)}) files\b", line)
        promised = words[said.group(1)] if said else promised
        row = re.fullmatch(r"\| `([\w/]+\.c)` \| (.*?) \| .* \|", line)
        if row and files is not None:
            files.add(row.group(1))
            code = (source / "daemon" / row.group(1)).read_text() if (source / "daemon" / row.group(1)).is_file() else ""
            for function in re.findall(r"`(\w+)\(\)`", row.group(2)) or ["(no function)"]:
                if not re.search(rf"^\w.*\b{re.escape(function)}\([^;]*\)\n\{{", code, re.M):
                    complain(path, number, f"daemon/{row.group(1)} does not define {function}()")
        elif line.startswith("| file | function |"):
            files = set()
        elif files is not None and not line.startswith("|"):
            if len(files) != promised:
                complain(path, number, f"the table has {len(files)} files, the text before it says {promised}")
            counted.append(len(files))
            files = promised = None
    if len(counted) != 2:
        complain(path, 1, f"{len(counted)} tables of a path, not 2")


def check_members():
    """Each member of a request's body that the daemon knows is in a document about them."""
    table = source / "daemon/api/api_fields.c"
    known = "".join((source / "docs" / name).read_text() for name in ("api.md", "structured-output.md"))
    rows = table.read_text().partition("root_fields[] = {")[2].partition("\n};")[0]
    for name in sorted(set(re.findall(r'^\t\{"(\w+)", ', rows, re.M)) or {"(no rows)"}):
        if f"`{name}`" not in known:
            complain(table, 1, f"no document is about the member {name}")


for document in documents:
    check_document(document)
for page in pages:
    check_page(page)
check_programs()
check_messages()
check_functions()
check_members()
check_paths()
print(*failures, sep="\n", end="\n" if failures else "")
print(f"{len(documents)} documents, {len(pages)} pages, {len(programs)} programs, {len(failures)} failures")
sys.exit(bool(failures))
