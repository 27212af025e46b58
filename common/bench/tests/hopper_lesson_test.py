"""Chapter 14's lesson: its numbers agree with each other, with arithmetic and with the results."""
import json
import os
import re
import unittest

from support import ROOT, Case

LESSON = os.path.join(ROOT, "chapters", "14_hopper", "README.md")
GAINS = os.path.join(ROOT, "data", "results", "virtual_h200", "gains.json")
HEADS = 32 * 12  # heads of all photos


def text():
    with open(LESSON, encoding="utf-8") as file:
        return " ".join(file.read().split())


def micros():
    """{(tokens, step): predicted time} of the table of the steps' times."""
    with open(LESSON, encoding="utf-8") as file:
        block = re.search(r"^\| tokens \|.*\n\|[-:|]+\n((?:\|.*\n)+)", file.read(), re.MULTILINE)
    steps = [name.strip() for name in block[0].splitlines()[0].strip("|").split("|")][1:]
    found = {}
    for row in block[1].splitlines():
        tokens, *times = [cell.strip() for cell in row.strip("|").split("|")]
        for step, time in zip(steps, times):
            found[int(tokens), step] = float(time.split()[0])
    return found


class HopperLesson(Case):
    def stated(self, pattern):
        match = re.search(pattern, text())
        self.assertTrue(match, f"no '{pattern}' in the lesson")
        return [float(group) for group in match.groups()]

    def test_ratios_are_those_of_the_times(self):
        us = micros()
        self.assertGreaterEqual(len(us), 9)
        for slow, quick in (("ragged", "wgmma"), ("wgmma", "persistent")):
            value, = self.stated(rf"\*\*([\d.]+)\*\*: how many times as fast `{quick}` is as `{slow}`, at 1025")
            self.assertAlmostEqual(value, us[1025, slow] / us[1025, quick], delta=0.0101)
        self.assertAlmostEqual(self.stated(r"\*\*([\d.]+)\*\*: at 577 tokens `tensor maps` \*loses\*")[0],
                               us[577, "ragged"] / us[577, "tensor maps"], delta=0.0101)

    def test_rates_are_those_of_the_times(self):
        for value, tokens in zip(self.stated(r"run at (\d+) TFLOP/s with 577 tokens, and at (\d+) with "
                                             r"1025"), (577, 1025)):
            best = min(time for (n, _), time in micros().items() if n == tokens)
            self.assertAlmostEqual(value / (4 * HEADS * tokens ** 2 * 64 / best / 1e6), 1, delta=0.007)

    def test_times_are_those_of_the_results(self):
        with open(GAINS, encoding="utf-8") as file:
            runs = [run for run in json.load(file)["runs"] if run["problem"].get("tokens") == 577]
        steps = [of for run in runs for of in run["steps"] if of["chapter"] == "14_hopper"]
        if not steps:
            raise unittest.SkipTest("no results of chapter 14: make bench DEVICE=vgpu")
        for step in steps:
            self.assertAlmostEqual(micros()[577, step["name"]] / step["predicted"]["us"], 1, delta=0.01,
                                   msg=f"{step['name']}: chapters/14_hopper/README.md")
        variants = [of for run in runs for of in run.get("variants", []) if of["chapter"] == "14_hopper"]
        for variant in variants:
            stated = self.stated(rf'`./run --step "?{variant["name"]}"? --predict --batch 32 --tokens 577`'
                                 r"[^`]*?([\d.]+) µs")[0]
            self.assertAlmostEqual(stated / variant["predicted"]["us"], 1, delta=0.01,
                                   msg=f"{variant['name']}: chapters/14_hopper/README.md")

    def test_what_is_said_of_variants_is_so(self):
        with open(GAINS, encoding="utf-8") as file:
            us = {of["name"]: of["predicted"]["us"] for run in json.load(file)["runs"]
                  if run["problem"].get("tokens") == 577
                  for of in run["steps"] + run.get("variants", []) if of["chapter"] == "14_hopper"}
        if "persistent" not in us:
            raise unittest.SkipTest("no results of chapter 14: make bench DEVICE=vgpu")
        self.assertLess(us["persistent"], us["wgmma"])
        self.assertGreater(us["every maximum"], us["wgmma"], "nothing is left of the gain")
        for lost in ("polynomials", "multicast"):
            self.assertGreater(us[lost], us["persistent"], lost)
        self.assertLess(us["no turns"] - us["wgmma"], (us["specialized"] - us["wgmma"]) / 2,
                        "turns are most of the loss")
