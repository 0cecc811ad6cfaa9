#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
kernel.py SOURCE - docs/kernel, which goes into a kernel's tree with the driver, and docs/sysfs.md name each attribute, module
parameter, debugfs file and tracepoint that the driver has, and none that it has not; MAINTAINERS names what there is.
"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
driver, kernel = source / "driver", source / "docs/kernel"
failures = []


def same(what, has, where, named):
    if not has:
        failures.append(f"the driver has no {what}: does this test still find them?")
    failures.extend(f"{where}: no {name}, which the driver has ({what})" for name in sorted(has - named))
    failures.extend(f"{where}: {name}, which the driver has not ({what})" for name in sorted(named - has))


def attributes():
    """Name below the PCI device and mode."""
    for path, place in (("sysfs.c", ""), ("hwmon.c", "hwmon/hwmon<M>/")):
        for mode, name in re.findall(r"DEVICE_ATTR_(R[OW])\((\w+)\)", (driver / path).read_text()):
            yield place + name, mode
    for name in re.findall(r"TXDA_PORT\(0, (\w+)\)", (driver / "sysfs.c").read_text()):
        yield f"c2c/port<N>_{name}", "RO"


def entries(path):
    """Of a file of Documentation/ABI."""
    for entry in re.split(r"\n\n(?=What:)", path.read_text()):
        what = re.match(r"What:\t\t/sys/bus/pci/devices/<BDF>/(\S+)\nDate:\t\t\w+ \d{4}\nKernelVersion:\t\d+\.\d+\n"
                        r"Contact:\t\S+\nDescription:\n\t\t\((R[OW])\) \S", entry)
        if what:
            yield what[1], what[2]
        else:
            failures.append(f"{path.name}: this is no entry:\n{entry}")


def rows(path):
    """Of the tables of docs/sysfs.md; what the PCI core or hwmon itself documents is not the driver's."""
    place = ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            place = "hwmon/hwmon<M>/" if "hwmon" in line else ""
        row = re.match(r"\| (`.*`) \| (r|w|rw) \|", line)
        for name in re.findall(r"`([^`]+)`", row[1]) if row else []:
            if name != "reset" and not re.match("(power|temp)1_", name):
                yield place + name, "RW" if row[2] == "rw" else "RO"


def section(path, title):
    """Names of the definition list under the title."""
    text = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n[-=]+$|\Z)", path.read_text(), re.M | re.S)
    return set(re.findall(r"^``(\w+)``$", text[1], re.M)) if text else set()


abi = kernel / "Documentation/ABI/testing/sysfs-driver-txda"
same("attribute", set(attributes()), abi.name, set(entries(abi)))
same("attribute", set(attributes()), "docs/sysfs.md", set(rows(source / "docs/sysfs.md")))

page = kernel / "Documentation/accel/txda/index.rst"
for title, what, path, expression in (("Module parameters", "module parameter", "drv.c", r"module_param\w*\((\w+)"),
                                      ("Performance counters", "perf event", "pmu.c", r"PMU_EVENT_ATTR_STRING\((\w+),"),
                                      ("debugfs", "debugfs file", "debugfs.c", r'\{"(\w+)", txda_debugfs_'),
                                      ("Tracepoints", "tracepoint", "trace.h", r"(?:TRACE|DEFINE)_EVENT\((?:txda_job, )?(\w+)")):
    same(what, set(re.findall(expression, (driver / path).read_text())), page.name, section(page, title))

# Where the paths of a kernel's tree are in this one.
places = {"drivers/accel/txda": driver, "include/uapi": source / "uapi", "Documentation": kernel / "Documentation"}
files = re.findall(r"^F:\t(\S+)$", (kernel / "MAINTAINERS").read_text(), re.M)
for name in files:
    path = next((here / name[len(there):].lstrip("/") for there, here in places.items() if name.startswith(there)), None)
    if not path or not (path.is_dir() if name.endswith("/") else path.is_file()):
        failures.append(f"MAINTAINERS: {name} is not here")
for path in [*kernel.glob("Documentation/**/*"), driver / "drv.c", source / "uapi/drm/txda_drm.h"]:
    there = next(f"{there}/{path.relative_to(here)}" for there, here in places.items() if path.is_relative_to(here))
    if path.is_file() and not any(there == name or name.endswith("/") and there.startswith(name) for name in files):
        failures.append(f"MAINTAINERS: nobody has {there}")

for failure in failures:
    print(failure)
sys.exit(bool(failures))
