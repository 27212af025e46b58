#!/usr/bin/env python3
"""Runs the tests of vision_operators, NAME_test.py in this folder. One program of `make test`.

What needs NumPy, PyTorch, transformers or timm is skipped, and named, where this Python has not got it.
"""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.dirname(HERE)]

if __name__ == "__main__":
    found = unittest.defaultTestLoader.discover(HERE, pattern=os.environ.get("TESTS", "*_test.py"))
    done = unittest.TextTestRunner(verbosity=1).run(found)
    skipped = {}
    for test, reason in done.skipped:
        skipped.setdefault(reason, []).append(test.id().split(".", 1)[-1])
    for reason, names in skipped.items():
        print(f"note: common/operators/tests: {reason}: skipped are {', '.join(sorted(names))}")
    sys.exit(0 if done.wasSuccessful() and done.testsRun else 1)
