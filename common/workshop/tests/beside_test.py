"""What was measured, and how it compares with what was predicted."""
import json
import os
import re
import unittest

from support import ROOT

import beside

GPU = os.path.join(ROOT, "data", "results", "nvidia_h200")


class Measured(unittest.TestCase):
    def test_no_share_of_a_floor_is_above_1(self):
        for file in sorted(os.listdir(GPU)):
            if re.fullmatch(r"chapter\d+\.json", file):
                with open(os.path.join(GPU, file), encoding="utf-8") as content:
                    for run in json.load(content)["runs"]:
                        for of in run["kernels"]:
                            self.assertLessEqual(of.get("share_of_floor", 0), 1, f"{file}, {run['name']}: {of['name']}")


class Beside(unittest.TestCase):
    ROWS = [("03_coalescing", "near", 90.0, 100.0, ""), ("14_hopper", "far", 60.0, 100.0, "197 tokens")]

    def test_the_same_problem(self):
        ours = {"batch": 32, "tokens": 577, "precision": "tf32,fp16", "source": "a"}
        self.assertTrue(beside.same_problem(ours, {"batch": 32, "tokens": 577, "source": "b", "seed": 1}))
        self.assertTrue(beside.same_problem(ours, {"batch": 32, "precision": "fp16"}))
        self.assertFalse(beside.same_problem(ours, {"batch": 32, "precision": "fp32"}))
        self.assertFalse(beside.same_problem(ours, {"batch": 32, "tokens": 197}))

    def test_what_is_said(self):
        text = "\n".join(beside.lines(self.ROWS, 0.25, "NVIDIA H200"))
        self.assertIn("2 steps were measured on the problem for which they were predicted. The prediction is off by "
                      "25% on average, and by no more than 25% for 1. Further off are far (197 tokens) of chapter 14 (-40%).", text)
        self.assertIn("| 3 | near | 90.0 | 100.0 | -10% |", text)
        self.assertNotIn("Further", "\n".join(beside.lines(self.ROWS[:1], 0.25, "NVIDIA H200")))
        self.assertEqual(beside.lines([], 0.25, "NVIDIA H200"), [])


if __name__ == "__main__":
    unittest.main()
