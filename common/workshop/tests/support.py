"""What these tests share, and where the modules under test lie."""
import contextlib
import copy
import io
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
WORKSHOP = os.path.dirname(HERE)
BENCH = os.path.join(WORKSHOP, "bench")
ROOT = os.path.dirname(os.path.dirname(WORKSHOP))
FIXTURES = os.path.join(HERE, "fixtures")
sys.path[:0] = [os.path.join(WORKSHOP, room) for room in ("bench", "figures", "lessons")]


def script(name, *arguments, **options):
    """(exit status, standard output, standard error) of a script: 'gains.py' of bench, 'lessons/docs.py'."""
    path = os.path.join(WORKSHOP if "/" in name else BENCH, name)
    done = subprocess.run([sys.executable, path, *arguments], text=True,
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
