#!/usr/bin/env python3
"""Runs the tests of common/mutants, NAME_test.py in this folder. One program of `make test`."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.dirname(HERE)]

if __name__ == "__main__":
    found = unittest.defaultTestLoader.discover(HERE, pattern=os.environ.get("TESTS", "*_test.py"))
    done = unittest.TextTestRunner(verbosity=1).run(found)
    sys.exit(0 if done.wasSuccessful() and done.testsRun else 1)
