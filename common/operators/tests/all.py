#!/usr/bin/env python3
"""Runs the tests of vision_operators, NAME_test.py in this folder. One program of `make test`.

What needs NumPy, PyTorch, transformers or timm is skipped, and named, where this Python has not got
it.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "..", "testing"))

if __name__ == "__main__":
    import unittest_program
    unittest_program.run(HERE)
