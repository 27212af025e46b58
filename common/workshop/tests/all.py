#!/usr/bin/env python3
"""Runs the tests of bench, figures and lessons, NAME_test.py in this folder. One program of `make test`."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))

if __name__ == "__main__":
    import unittest_program
    unittest_program.run(HERE)
