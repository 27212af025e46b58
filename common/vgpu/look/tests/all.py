#!/usr/bin/env python3
"""Runs the tests of the page of --look, NAME_test.py in this folder. One program of `make test`.

They drive a Chromium (Debian: chromium). Where there is none they are skipped, and named.
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE]

if __name__ == "__main__":
    found = unittest.defaultTestLoader.discover(HERE, pattern=os.environ.get("TESTS", "*_test.py"))
    done = unittest.TextTestRunner(verbosity=1).run(found)
    skipped = {}
    for test, reason in done.skipped:
        skipped.setdefault(reason, []).append(test.id().split(".", 1)[-1])
    for reason, names in skipped.items():
        print(f"note: common/vgpu/look/tests: {reason}: skipped are {', '.join(sorted(names))}")
    sys.exit(0 if done.wasSuccessful() and done.testsRun else 1)
