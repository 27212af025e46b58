"""What lessons say of an H200 is what the results of that GPU hold."""
import json
import os
import re
import unittest

from support import ROOT

import beside

GPU = os.path.join(ROOT, "data", "results", "nvidia_h200")


def lesson(folder):
    with open(os.path.join(ROOT, "chapters", folder, "README.md"), encoding="utf-8") as file:
        return file.read()


def kernels(chapter, run):
    """{step: its line} of a run."""
    with open(os.path.join(GPU, f"chapter{chapter}.json"), encoding="utf-8") as file:
        [found] = [of for of in json.load(file)["runs"] if of["name"] == run]
    return {of["name"]: of for of in found["kernels"]}, found


class MeasuredLessons(unittest.TestCase):
    def stated(self, text, pattern, *values):
        """The pattern's numbers are these, as far as they are written out."""
        match = re.search(pattern, " ".join(text.split()))
        self.assertTrue(match, f"no '{pattern}' in the lesson")
        for group, value in zip(match.groups(), values, strict=True):
            decimals = len(group.partition(".")[2])
            self.assertEqual(float(group.replace(",", "")), round(value, decimals), pattern)

    def test_chapter_12(self):
        of, run = kernels(12, "tiny 32 photos")
        peers = {peer["name"]: peer for peer in run["peers"]}
        text = lesson("12_vision_transformer")
        self.stated(text, r"on an H200, the same net needs (\d+) µs for 32 photos, replayed from a CUDA graph\. PyTorch needs (\d+) µs where it has compiled the net, "
                          r"and (\d+) µs where it has not",
                    of["net"]["graph_us"], peers["compiled"]["graph_us"], peers["eager"]["graph_us"])
        self.stated(text, r"the net takes ([\d,]+) µs and PyTorch ([\d,]+) µs or more", of["net"]["median_us"],
                    peers["compiled"]["median_us"])
        self.assertGreater(peers["eager"]["median_us"], peers["compiled"]["median_us"])

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
