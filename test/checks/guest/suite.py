# SPDX-License-Identifier: Apache-2.0

"""Runs rdma-core's own tests of a device, each in a process of its own.

    suite.py [--seconds N] [--device NAME] [--gid N] [PATTERN…]

Patterns are regular expressions for the names of tests, as run_tests.py has them.

A line of JSON on stdout for each test: its name, outcome (pass, skip, fail, hang or
crash), why, in the words of the test, and the seconds it took. What tests print
goes to stderr. A test that has not ended after N seconds is killed with all that it
started. The status is 0 if they all ran, however they ended.
"""

import argparse
import copy
import json
import os
import random
import re
import select
import signal
import sys
import time
import unittest
from importlib.machinery import SourceFileLoader

TESTS = "/usr/share/doc/rdma-core/tests"

# These draw which extensions of a queue pair they ask for, and skip if they draw
# one that a device does not have.
DRAWING = re.compile(r"test_qp\.QPTest\.")
DRAWS = 12


def load(args):
    """load imports the tests as run_tests.py does."""
    sys.path.insert(0, TESTS)
    from args_parser import parser

    sys.argv[1:] = (["--dev", args.device] if args.device else []) + (["--gid", str(args.gid)] if args.gid else [])
    parser.parse_args()
    module = SourceFileLoader("tests", os.path.join(TESTS, "__init__.py")).load_module()
    found = unittest.defaultTestLoader.loadTestsFromModule(module)

    def each(suite):
        for t in suite:
            if isinstance(t, unittest.TestSuite):
                yield from each(t)
            else:
                yield t

    return list(each(found))


def last(traceback):
    """last is the exception of a traceback; the line before tells where."""
    lines = traceback.strip().splitlines()
    at = max((i for i, line in enumerate(lines) if line.startswith("  File ")), default=0)
    where = re.sub(r'.*File "(?:.*/)?([^/"]+)", line (\d+), in (\S+).*', r"\1:\2 \3", lines[at])
    what = " ".join(line.strip() for line in lines if line and not line.startswith(" ") and not line.startswith("Traceback"))
    return f"{what} ({where})"


def run(test):
    """run is what a child does: a test, and (outcome, why)."""
    for n in range(DRAWS if DRAWING.search(test.id()) else 1):
        random.seed(f"{test.id()} {n}")
        result = unittest.TestResult()
        unittest.TestSuite([copy.copy(test)]).run(result)
        if not result.skipped:
            break
    wrong = result.failures + result.errors
    if wrong:
        return "fail", "; ".join(last(text) for _, text in wrong)
    if result.skipped:
        return "skip", "; ".join(why for _, why in result.skipped)
    return "pass", ""


def alone(test, seconds):
    """alone runs a test in a process group of its own."""
    got, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(got)
        os.dup2(2, 1)
        text = json.dumps(run(test)).encode()
        os.write(told, text)
        os._exit(0)  # what a test left open is the kernel's to close
    os.close(told)
    text = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ready, _, _ = select.select([got], [], [], max(0, end - time.monotonic()))
        if not ready:
            break
        part = os.read(got, 65536)
        if not part:
            break
        text += part
        if text.endswith(b"]"):
            break
    os.close(got)
    # It may have left children, whether it has ended or not.
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(pid, 0)
    if text:
        return json.loads(text)
    if time.monotonic() >= end:
        return "hang", f"killed after {seconds} s"
    return "crash", f"status {os.waitstatus_to_exitcode(status)}"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=int, default=120)
    args.add_argument("--device")
    args.add_argument("--gid", type=int)
    args.add_argument("patterns", nargs="*")
    args = args.parse_args()
    for test in load(args):
        if args.patterns and not any(re.search(p, test.id()) for p in args.patterns):
            continue
        begin = time.monotonic()
        outcome, why = alone(test, args.seconds)
        print(json.dumps({"test": test.id(), "outcome": outcome, "why": why, "seconds": round(time.monotonic() - begin, 1)}), flush=True)


main()
