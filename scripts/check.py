#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check.py check|all [STAGE...] - build and test; `make check` and `make check-all` start it.

  check   what everybody runs, in a quarter of an hour; stages that follow are run in full after it
  all     everything, or only the stages that follow, without a limit of time

  stage    check                                      in full
  build    what user, asan, tsan and vm need; without it there is no sense in the others
  user     user space with gcc, warnings are errors;  every test
           the tests that are not of suite full
  asan     AddressSanitizer and UBSan of gcc, suites  those of clang, the end-to-end tests of sanitize, too,
           unit and fuzz, on kernels of stage user    and the compute kernels themselves
  tsan     -                                          clang and ThreadSanitizer, suite threads
  arm      -                                          NEON kernels and two models, in an emulator
  static   formats, licences, scripts, units, docs    and the kernel's checkpatch and coccicheck, alert rules
  module   txda.ko with W=1 for the newest kernel     for each supported kernel, and through sparse
  vm       one machine with the newest kernel         all cases on the newest kernel, and on the oldest what differs
  bare     -                                          README's commands and the packages on bare Debian 12 and 13

Stages user, asan, tsan and arm run one after the other and print as they go; static, module, vm and bare, which often
wait, run beside them and are shown when they end. Everything is kept in build/stages/STAGE.log. At the end: a table of
the stages, the slowest tests, what failed and what was skipped with its reason, and one line of counts. Exit status 1
when anything failed.
"""
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
B = Path(os.environ.get("B", "build"))
JOBS = str(len(os.sched_getaffinity(0)))
START = time.monotonic()
SLOWEST = 20
BESIDE = ("static", "module", "vm", "bare")


def clock(seconds):
    return "%d:%02d" % divmod(int(seconds), 60)


class Stage:
    """One stage: its commands, what they cost, and a list of results (OK, FAIL or SKIP; test; reason; seconds)."""

    def __init__(self, name, full):
        self.name, self.full = name, full
        self.title = name + " in full" if full and LEVEL == "check" else name
        self.results, self.wall, self.cpu = [], 0.0, 0.0
        self.log = STAGES_DIR / (self.title.replace(" ", "-") + ".log")

    def add(self, result, test, reason="", seconds=0.0):
        self.results.append((result, test, reason, float(seconds or 0)))

    def run(self, *command, env=None, quiet=False):
        """Run a command and return its exit status. What it prints goes to the log; to the terminal, too, unless quiet."""
        with open(self.log, "ab") as log:
            own = self.name not in BESIDE and not quiet
            child = subprocess.Popen([str(word) for word in command], cwd=TOP, stdin=subprocess.DEVNULL,
                                     stdout=None if own else log, stderr=subprocess.STDOUT if not own else None,
                                     env={**os.environ, "B": str(B), **(env or {})})
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        self.cpu += used.ru_utime + used.ru_stime
        return child.returncode

    def last_line(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no reason was given"

    def check(self, test, *command, env=None):
        """A command is one test: exit status 77 skips it, and its last line says why."""
        begun = time.monotonic()
        with open(self.log, "a") as log:
            log.write("-- %s\n" % test)
        status = self.run(*command, env=env, quiet=True)
        seconds = time.monotonic() - begun
        if status == 0:
            self.add("OK", test, "", seconds)
        else:
            self.add("SKIP" if status == 77 else "FAIL", test, self.last_line(), seconds)
        return status

    def script(self, *command, env=None):
        """A script with many tests writes them as lines "RESULT TAB test TAB reason TAB seconds" into the file that follows -r."""
        into = STAGES_DIR / ("%s.%d.results" % (self.log.stem, len(self.results)))
        into.write_text("")
        status = self.run(*command[:2], "-r", into, *command[2:], env=env)
        lines = [line.split("\t") for line in into.read_text().splitlines()]
        for fields in lines:
            self.add(*fields[:4])
        if status == 77 and not any(fields[0] == "SKIP" for fields in lines):
            self.add("SKIP", self.name, self.last_line())
        elif status not in (0, 77) and not any(fields[0] == "FAIL" for fields in lines):
            self.add("FAIL", self.name, "exit status %d, see above" % status)

    def meson(self, directory, setup, arguments, env=None):
        """Configure a build directory, let meson build what the tests need, and run them."""
        if not (directory / "build.ninja").exists() and self.run("meson", "setup", directory, *setup, env=env):
            self.add("FAIL", "configure", "meson setup failed, see above")
            return
        for log in directory.glob("meson-logs/testlog*.json"):
            log.unlink()
        status = self.run("meson", "test", "-C", directory, "--print-errorlogs", "--num-processes", JOBS, *arguments, env=env)
        results = [json.loads(line) for log in directory.glob("meson-logs/testlog*.json") for line in log.read_text().splitlines()]
        for test in results:
            name = test["name"].split(" / ")[-1]
            said = (test.get("stdout") or "").strip().splitlines()
            if test["result"] in ("OK", "EXPECTEDFAIL"):
                self.add("OK", name, "", test["duration"])
            elif test["result"] == "SKIP":
                self.add("SKIP", name, said[-1] if said else "the test gave no reason", test["duration"])
            else:
                self.add("FAIL", name, test["result"], test["duration"])
        if not results or (status and not any(test["result"] not in ("OK", "SKIP") for test in results)):
            self.add("FAIL", "build", "meson test: exit status %d, see above" % status)

    def sanitized(self, directory, *arguments, **options):
        """As meson(), and what processes reported whose output no test looks at."""
        for report in directory.glob("report.*"):
            report.unlink()
        self.meson(directory, *arguments, **options)
        for report in sorted(directory.glob("report.*")):
            print(report.read_text(errors="replace")[:8000])
            self.add("FAIL", "report of a sanitizer", str(report))


def build(stage):
    """What stages user, asan, tsan and vm share, which may not build it at once."""
    directory = B / "check"
    if (directory / "build.ninja").exists() or not stage.run("meson", "setup", directory, *CHECKED):
        # What only tests need is a target of its own in newer mesons.
        prereq = subprocess.run(["ninja", "-C", directory, "-t", "targets", "all"], cwd=TOP, stdout=subprocess.PIPE, check=True).stdout
        if not stage.run("ninja", "-C", directory, "all", *(["meson-test-prereq"] if b"\nmeson-test-prereq:" in prereq else [])):
            stage.add("OK", "user space")
            return
    stage.add("FAIL", "user space", "does not build, see above")


def user(stage):
    stage.meson(B / "check", CHECKED, [] if stage.full else ["--no-suite", "full"], env=node_client(stage))


def asan(stage):
    sanitized = SANITIZED + ["-Db_sanitize=address,undefined"]
    suites = ["--suite", "unit", "--suite", "fuzz", "--no-suite", "kernels"]
    suites += ["--suite", "sanitize"] if stage.full else ["--no-suite", "full"]
    if not stage.full:
        stage.sanitized(B / "asan", sanitized + KERNELS, ["--setup", "asan", *suites])
        return
    stage.sanitized(B / "asan-clang", sanitized + KERNELS, ["--setup", "asan", *suites], env={"CC": "clang"})
    stage.sanitized(B / "asan-kernels", sanitized + ["-Davx512=" + has_avx512()], ["--setup", "kernels", "--suite", "kernels"],
                    env={"CC": "clang"})


def tsan(stage):
    stage.sanitized(B / "tsan", SANITIZED + ["-Db_sanitize=thread", *KERNELS], ["--setup", "tsan", "--suite", "threads"],
                    env={"CC": "clang"})


def arm(stage):
    if os.uname().machine == "aarch64":
        stage.add("SKIP", "arm", "this machine is one: stage user has run them")
    elif stage.check("libraries for ARM", "sh", "scripts/arm-root.sh", B / "arm") == 0:
        # Threads that wait for each other's memory take the emulator long.
        stage.meson(B / "arm/build", ["--cross-file", B / "arm/cross.ini", *CHECKED],
                    ["--suite", "arm", "--timeout-multiplier", "20"],
                    env={"OPS_PATHS": "neon neonbf16", "OPS_STEPS": "7", "TXDA_CMODEL": "cores=1"})


def static(stage):
    scripts = "scripts/*.sh packaging/*.sh packaging/container/*.sh tests/container/*.sh tests/vm/*.sh"
    guests = "tests/vm/guest/boot tests/vm/guest/*.sh tests/vm/guest/run-cases tests/vm/guest/systemd-setup tests/vm/guest/vmhost"
    for test, command in {
            "systemd units": "sh scripts/verify-units.sh",
            "shell scripts": "shellcheck -x -e SC1091 .ci/run %s %s" % (scripts, guests),
            # They run under the guest's own shells, and read lines of which they want some words.
            "shell scripts in virtual machines":
                "shellcheck -x -S warning -e SC1091,SC2034,SC2154,SC3044,SC3045 tests/vm/cases/*.sh",
            "licence headers": "sh scripts/verify-spdx.sh",
            "one version": "sh scripts/verify-version.sh",
            "layout of C files": "sh scripts/verify-format.sh",
            "lists and tables in comments": "sh scripts/verify-comments.sh",
            "options of the driver": "sh scripts/verify-kconfig.sh %s" % (B / "kernel-headers"),
            "commands of the documents": "sh tests/docs/commands.sh --table",
            "what a folder may know": "python3 scripts/verify-includes.py",
            "functions that only tests call": "python3 scripts/verify-unused.py",
    }.items():
        stage.check(test, "sh", "-c", command)
    if stage.full:
        stage.check("checkpatch", "sh", "scripts/checkpatch.sh", B / "kernel-scripts")
        stage.check("coccicheck", "sh", "scripts/coccicheck.sh", B / "kernel-scripts")
        stage.check("alert rules", "sh", "scripts/alert-rules.sh", B / "promtool")


def module(stage):
    stage.script("sh", "scripts/check-module.sh", *([] if stage.full else ["newest"]))


def vm(stage):
    stage.script("sh", "tests/vm/check.sh", *([] if stage.full else ["-1"]))


def bare(stage):
    for suite in ("bookworm", "trixie"):
        stage.script("sh", "scripts/bare.sh", suite)


def has_avx512():
    """Kernels that nothing here can run are compiled in stage user alone."""
    flags = Path("/proc/cpuinfo").read_text()
    return "true" if "avx512_vnni" in flags or os.uname().machine != "x86_64" else "false"


def node_client(stage):
    """OpenAI's client for the end-to-end tests; they skip with a reason where it cannot be had."""
    modules = (B / "node/node_modules").resolve()
    if stage.full and not (modules / "undici/package.json").exists():
        modules.parent.mkdir(parents=True, exist_ok=True)
        stage.run("npm", "install", "--prefix", modules.parent, "--no-audit", "--no-fund", "--no-save", "--loglevel=error",
                  "--fetch-retries=1", "--fetch-timeout=30000", "openai@6", "undici@6")
    return {"TXDA_NODE_MODULES": str(modules)}


CHECKED = ["-Dtests=true", "-Dwerror=true"]
# Reports name functions and lines. Warnings are those of CHECKED: a sanitizer's instructions bring wrong ones.
SANITIZED = ["-Dtests=true", "-Ddebug=true", "-Doptimization=1", "-Dc_args=-g1", "-Db_lundef=false"]
# The compute kernels of the ordinary build, for sanitizers that do not watch them.
KERNELS = ["-Dkernels=%s" % (TOP / B / "check").resolve()]
STAGES = {"user": user, "asan": asan, "tsan": tsan, "arm": arm, "static": static, "module": module, "vm": vm, "bare": bare}
LEVEL = (sys.argv[1:2] or [""])[0]
STAGES_DIR = TOP / B / "stages"


def run_stages(stages):
    for stage in stages:
        begun = time.monotonic()
        print("\n== [%s] %s" % (clock(begun - START), stage.title), flush=True)
        try:
            (build if stage.name == "build" else STAGES[stage.name])(stage)
        except Exception as error:  # pylint: disable=broad-except
            stage.add("FAIL", stage.name, "%s: %s" % (type(error).__name__, error))
        stage.wall = time.monotonic() - begun
        if stage.name in BESIDE:
            print("\n== [%s] %s has ended\n%s" % (clock(time.monotonic() - START), stage.title,
                                                  stage.log.read_text(errors="replace") if stage.log.exists() else ""), flush=True)


def report(stages):
    def count(results, wanted):
        return sum(result[0] == wanted for result in results)

    print("\n== [%s] done\n\n   %-12s %8s %8s %8s %10s %12s" % (
        clock(time.monotonic() - START), "stage", "passed", "failed", "skipped", "time", "processors"))
    for stage in stages:
        print("   %-12s %8d %8d %8d %10s %10.0f s" % (stage.title, count(stage.results, "OK"), count(
            stage.results, "FAIL"), count(stage.results, "SKIP"), clock(stage.wall), stage.cpu))
    everything = [(stage.title, *result) for stage in stages for result in stage.results]
    print("   all of it %41s %10.0f s\n\n   the slowest:" % (clock(time.monotonic() - START), sum(stage.cpu for stage in stages)))
    for name, _, test, _, seconds in sorted(everything, key=lambda row: -row[4])[:SLOWEST]:
        print("   %7.1f s  %s: %s" % (seconds, name, test))
    print()
    for name, result, test, reason, _ in everything:
        if result != "OK":
            print("   %-4s %s: %s: %s" % (result, name, test, reason))
    results = [result for stage in stages for result in stage.results]
    passed, failed, skipped = (count(results, wanted) for wanted in ("OK", "FAIL", "SKIP"))
    line = "%d passed, %d failed%s" % (passed, failed, ", %d skipped" % skipped if skipped else "")
    (STAGES_DIR / "summary").write_text(line + "\n")
    print(line)
    return 0 if passed and not failed else 1


def main():
    names = sys.argv[2:]
    if LEVEL not in ("check", "all"):
        sys.exit(__doc__)
    for name in names:
        if name not in STAGES:
            sys.exit("There is no stage %s; there are: %s" % (name, " ".join(STAGES)))
    os.chdir(TOP)
    try:
        STAGES_DIR.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"check.py: cannot build in {STAGES_DIR.parent}: {error.strerror}")
    for old in STAGES_DIR.iterdir():
        old.unlink()
    stages = [Stage(name, False) for name in ("user", "asan", "static", "module", "vm")] if LEVEL == "check" else []
    stages += [Stage(name, True) for name in names or (STAGES if LEVEL == "all" else [])]
    if any(stage.name in ("user", "asan", "tsan", "vm") for stage in stages):
        stages.insert(0, Stage("build", False))
        run_stages(stages[:1])
        if stages[0].results[0][0] == "FAIL":
            sys.exit(report(stages[:1]))
    beside = threading.Thread(target=run_stages, args=([stage for stage in stages if stage.name in BESIDE],), daemon=True)
    beside.start()
    run_stages([stage for stage in stages if stage.name not in BESIDE + ("build",)])
    beside.join()
    sys.exit(report(stages))


if __name__ == "__main__":
    main()
