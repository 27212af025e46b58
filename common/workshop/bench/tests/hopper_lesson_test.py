"""Chapter 14's lesson: its numbers agree with each other, with arithmetic and with the results."""
import json
import os
import re
import unittest

from support import ROOT, Case

import quoted

LESSON = os.path.join(ROOT, "chapters", "14_hopper", "README.md")
RESULTS = os.path.join(ROOT, "data", "results", "virtual_h200")
GAINS = os.path.join(RESULTS, "gains.json")
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


def steps(tokens):
    """{step: line of quoted.json} of 32 photos."""
    found = quoted.lines(RESULTS, 14, batch=32, tokens=tokens)
    if not found:
        raise unittest.SkipTest("no results of chapter 14: make bench DEVICE=vgpu")
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

    def shares(self, pattern, *shares):
        """The pattern's numbers are these shares in percent."""
        self.assertEqual(self.stated(pattern), [round(100 * share) for share in shares])

    def test_all_times_of_the_table_are_those_of_the_results(self):
        for (tokens, step), stated in micros().items():
            us = steps(tokens)[step]["us"]
            self.assertAlmostEqual(stated / us, 1, delta=0.01, msg=f"{step}, {tokens} tokens: {us}")

    def test_what_ragged_does(self):
        ragged = steps(1025)["ragged"]
        rate, = self.stated(r"\*ragged\*, computes (\d+) TFLOP/s with 1025 tokens")
        self.assertAlmostEqual(rate / (4 * HEADS * 1025 ** 2 * 64 / ragged["us"] / 1e6), 1, delta=0.007)
        self.shares(r"the tensor cores are busy for only (\d+)% of the time", ragged["pipes"]["tensor"]["share"])
        self.shares(r"\*\*of 100 instructions (\d+) are products",
                    ragged["pipes"]["tensor"]["instructions"] / ragged["machine_instructions"])

    def test_the_time_before(self):
        value, = self.stated(r"With 32 photos of 577 tokens, \*ragged\* takes (\d+) µs by prediction")
        self.assertAlmostEqual(value / steps(577)["ragged"]["us"], 1, delta=0.01)

    def test_how_busy_units_are(self):
        wgmma = steps(1025)["wgmma"]
        products, = self.stated(r"\*\*([\d.]+) of 100\*\*: how many of `wgmma`'s instructions are products")
        self.assertAlmostEqual(products, 100 * wgmma["pipes"]["tensor"]["instructions"] /
                               wgmma["machine_instructions"], delta=0.0501)
        self.shares(r"tensor cores are busy for (\d+)% of the time, the unit for exponentials for (\d+)%, "
                    r"and the issue slots for (\d+)%", wgmma["pipes"]["tensor"]["share"],
                    wgmma["pipes"]["xu"]["share"], wgmma["issue_share"])

    def test_what_197_tokens_wait_for(self):
        persistent, by_head = steps(197)["persistent"], steps(197)["head by head"]
        self.shares(r"Warps wait for code for (\d+)% of their time, at 1025 tokens for (\d+)%",
                    persistent["stalls"]["no_instructions"], steps(1025)["persistent"]["stalls"]["no_instructions"])
        us, share = self.stated(r"Dealt head by head, 197 tokens take ([\d.]+) µs: (\d+)% of all waiting is at the "
                                r"division")
        self.assertAlmostEqual(us / by_head["us"], 1, delta=0.005)
        at = [of for line, of in by_head["waits_at"].items() if "return number / row_blocks" in line]
        self.assertEqual([share], [round(100 * of) for of in at])

    def test_head_by_head_some_sms_get_only_full_items(self):
        rows = {(number + number // 2) % 2 for number in range(768) if number % 132 == 0}
        self.assertEqual(rows, {0}, "ItemsByHead of 4_persistent.cuh, at 197 tokens")

    def test_empty_rows_of_products(self):
        self.shares(r"rows of a fourth: (\d+)% of the products' rows are empty", 1 - 197 / (4 * 64))

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
            stated = self.stated(rf'`./run --step "?{variant["name"]}"?(?: --predict --batch 32 --tokens 577)?`'
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
        self.assertAlmostEqual(self.stated(r"It takes \d+ µs, ([\d.]+) times as long")[0],
                               us["one block"] / us["wgmma"], delta=0.0051)
        self.assertGreater(us["every maximum"] - us["persistent"], (us["wgmma"] - us["persistent"]) / 2,
                           "most of the gain is gone")
        for lost in ("polynomials", "multicast", "head by head"):
            self.assertGreater(us[lost], us["persistent"], lost)
        self.assertLess(us["no turns"] - us["wgmma"], (us["specialized"] - us["wgmma"]) / 2,
                        "turns are most of the loss")
