"""What the tests of common/workshop/bench share."""
import contextlib
import copy
import io
import os
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(BENCH)))
FIXTURES = os.path.join(BENCH, "tests", "fixtures")


def script(name, *arguments, **options):
    """(exit status, standard output, standard error) of a script of common/workshop/bench."""
    done = subprocess.run([sys.executable, os.path.join(BENCH, name), *arguments], text=True,
                          capture_output=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def fixture(name):
    return os.path.join(FIXTURES, name)


class Case(unittest.TestCase):
    """With a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def files(self):
        return sorted(os.listdir(self.folder))


__all__ = ["BENCH", "ROOT", "Case", "contextlib", "copy", "fixture", "io", "script"]
