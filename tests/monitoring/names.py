#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
names.py METRICS DASHBOARD RULES - each metric and each of its labels that expressions of the dashboard and the rules name is in
METRICS, what the daemon printed; and the dashboard is one that can be drawn: panels of its grid, none on another.
"""
import json
import re
import sys

metrics, dashboard, rules = (open(path).read() for path in sys.argv[1:])
failures = []

# Labels by metric; histograms as Prometheus stores them, a series for each of their three parts.
labels = {}
for line in metrics.splitlines():
    if match := re.match(r"# TYPE (\w+) (\w+)", line):
        for part in ("_bucket", "_sum", "_count") if match[2] == "histogram" else ("",):
            labels.setdefault(match[1] + part, set())
    elif match := re.match(r"(txda_\w+)(?:{(.*)})? ", line):
        labels[match[1]] |= set(re.findall(r'(\w+)="', match[2] or ""))
# What Prometheus adds to each sample.
added = {"instance", "job"}


def check(where, expression):
    # What Grafana puts in.
    expression = re.sub(r"\$__\w+", "5m", expression)
    named = re.findall(r"\b(txda_\w+)", expression)
    if not named and not re.search(r"\bup\b", expression):
        failures.append(f"{where}: no metric of txdad in: {expression}")
    for metric, selector in re.findall(r"\b(txda_\w+)(?:{([^}]*)})?", expression):
        if metric not in labels:
            failures.append(f"{where}: the daemon has no {metric}")
            continue
        for label in set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) - labels[metric] - added:
            failures.append(f"{where}: {metric} has no label {label}")
    everywhere = set.union(added, *(labels.get(metric, set()) for metric in named))
    for group in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression):
        for label in set(re.findall(r"\w+", group)) - everywhere:
            failures.append(f"{where}: nothing there has a label {label}: {expression}")
    return everywhere


def check_panel(panel, taken):
    place = panel["gridPos"]
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            if not 0 <= x < 24 or (x, y) in taken:
                failures.append(f"panel {panel['title']}: lies on another one, or beside the grid, at {x}, {y}")
                return
            taken.add((x, y))
    for target in panel.get("targets", []):
        there = check(f"panel {panel['title']}", target["expr"])
        for label in set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - there:
            failures.append(f"panel {panel['title']}: nothing there has the label {label} of the legend")


board = json.loads(dashboard)
taken, targets = set(), 0
for panel in board["panels"]:
    check_panel(panel, taken)
    targets += len(panel.get("targets", []))
if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
    failures.append("two panels have the same id")
for variable in board["templating"]["list"]:
    if match := re.match(r"label_values\((.*), (\w+)\)$", variable.get("definition", "")):
        if match[2] not in check(f"variable {variable['name']}", match[1]):
            failures.append(f"variable {variable['name']}: no label {match[2]}")

# One expression a line, as the file is written.
alerts = re.findall(r"^ *- alert: (\w+)\n *expr: (.*)$", rules, re.M)
if len(alerts) != rules.count("alert:"):
    failures.append(f"{len(alerts)} alerts with an expression in the line after them, of {rules.count('alert:')}")
for name, expression in alerts:
    check(f"alert {name}", expression)

print(*failures, sep="\n", end="\n" if failures else "")
print(f"{len(labels)} series, {len(board['panels'])} panels with {targets} expressions, {len(alerts)} alerts, {len(failures)} failures")
sys.exit(bool(failures) or not targets or not alerts)
