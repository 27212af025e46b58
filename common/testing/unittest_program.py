"""A folder's NAME_test.py as one program of `make test`: common/*/tests/all.py call it.

What is skipped is named: common/make/run_tests.sh shows lines that begin with `note: ` and does not count
skipped cases as passed.
"""
import os
import sys
import unittest


def run(folder):
    """Runs the tests in `folder`, which import what lies beside them and in the folder above, and ends."""
    sys.path[:0] = [folder, os.path.dirname(folder)]
    found = unittest.defaultTestLoader.discover(folder, pattern=os.environ.get("TESTS", "*_test.py"))
    done = unittest.TextTestRunner(verbosity=1).run(found)
    skipped = {}
    for test, reason in done.skipped:
        skipped.setdefault(reason, []).append(test.id().split(".", 1)[-1])
    for reason, names in skipped.items():
        print(f"note: {os.path.relpath(folder)}: {reason}: skipped are {', '.join(sorted(names))}")
    sys.exit(0 if done.wasSuccessful() and done.testsRun else 1)
