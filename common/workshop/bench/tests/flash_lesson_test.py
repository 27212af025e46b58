"""Chapter 13's lesson: its tables by hand agree with each other, with arithmetic and with the results."""
import math
import os
import re
import unittest

from support import ROOT, Case

import quoted

LESSON = os.path.join(ROOT, "chapters", "13_flash_attention", "README.md")
RESULTS = os.path.join(ROOT, "data", "results", "virtual_h200")
HEADS = 32 * 12  # heads of all photos


def tables():
    """The lesson's tables: [{(first cell, head of the column): number before any bracket}]."""
    with open(LESSON, encoding="utf-8") as file:
        blocks = re.findall(r"(?:^\|.*\n)+", file.read(), flags=re.MULTILINE)
    found = []
    for block in blocks:
        head, _, *rows = [[cell.strip() for cell in row.strip("|\n").split("|")]
                          for row in block.splitlines()]
        found.append({(row[0], name): float(match[0]) for row in rows
                      for name, cell in zip(head[1:], row[1:])
                      if (match := re.match(r"[\d.]+", cell))})
    return found


def table_with(cell, column, wanted=lambda value: True):
    found = [of for of in tables() if (cell, column) in of and wanted(of[cell, column])]
    assert len(found) == 1, f"{len(found)} tables with {cell}, {column}"
    return found[0]


def micros():
    return table_with("197", "ragged")


def steps(tokens):
    """{step: line of quoted.json} of 32 photos, the step that was not kept among them."""
    found = quoted.lines(RESULTS, 13, batch=32, tokens=tokens)
    if not found:
        raise unittest.SkipTest("no results of chapter 13: make bench DEVICE=vgpu")
    return found


class FlashLesson(Case):
    def stated(self, pattern):
        """The numbers of the pattern's groups, in the lesson as one line."""
        with open(LESSON, encoding="utf-8") as file:
            match = re.search(pattern, " ".join(file.read().split()))
        self.assertTrue(match, f"no '{pattern}' in the lesson")
        return [float(group) for group in match.groups()]

    def shares(self, pattern, *shares):
        """The pattern's numbers are these shares in percent."""
        self.assertEqual(self.stated(pattern), [round(100 * share) for share in shares])

    def test_all_times_are_those_of_the_results(self):
        for (tokens, step), stated in micros().items():
            us = steps(int(tokens))[step]["us"]
            self.assertAlmostEqual(stated / us, 1, delta=0.01, msg=f"{step}, {tokens} tokens: {us}")
        self.assertEqual(len(micros()), 15)

    def test_how_busy_tensor_cores_are(self):
        long = {name: line["pipes"] for name, line in steps(1025).items()}
        for pattern in (r"they are busy for (\d+)% of the predicted time",
                        r"In `coalesced K` it is (\d+)%"):
            self.shares(pattern, long["coalesced K"]["tensor"]["share"])
        self.assertAlmostEqual(self.stated(r"\*coalesced K\*, takes (\d+) µs by prediction")[0] /
                               steps(577)["coalesced K"]["us"], 1, delta=0.005)
        self.shares(r"\*\*What fills the other (\d+)%\?", 1 - long["coalesced K"]["tensor"]["share"])
        self.shares(r"\*\*(\d+)%\*\*: how much of the time the tensor cores are busy in `pipeline`",
                    long["pipeline"]["tensor"]["share"])
        self.shares(r"are busy for (\d+)% of the time, the unit for exponentials for (\d+)%",
                    long["pipeline"]["tensor"]["share"], long["pipeline"]["xu"]["share"])

    def test_what_steps_bought(self):
        us = {tokens: {name: line["us"] for name, line in steps(tokens).items()} for tokens in (197, 577, 1025)}
        long = us[1025]
        self.assertEqual(self.stated(r"\*\*([\d.]+)\*\*: how many times as fast `registers` is"),
                         [round(long["loads in flight"] / long["registers"], 1)])
        names = ("coalesced K", "loads in flight", "registers", "pipeline", "ragged")
        gains = {name: long[before] / long[name] for before, name in zip(names, names[1:])}
        self.assertEqual(max(gains, key=gains.get), "registers")
        self.assertEqual(self.stated(r"\*\*([\d.]+)\*\*: at 1025 tokens `ragged` \*loses\*"),
                         [round(long["pipeline"] / long["ragged"], 2)])
        self.shares(r"multiplies (\d+)% less and takes (\d+)% longer. At 197 and 577 tokens it gains (\d+)% and "
                    r"(\d+)%", 1 - self.made("ragged", 1025) / self.made("pipeline", 1025),
                    long["ragged"] / long["pipeline"] - 1,
                    *(us[tokens]["pipeline"] / us[tokens]["ragged"] - 1 for tokens in (197, 577)))
        # Beside our own predictions, in brackets in the table.
        self.assertEqual(self.stated(r"at 197 it takes ([\d.]+) times as long"), [round(us[197]["ragged"] / 16, 1)])
        self.shares(r"faster than we thought, by (\d+)% and (\d+)%", 1 - long["registers"] / 450,
                    1 - long["pipeline"] / 390)

    def made(self, step, tokens):
        rows, keys = {"pipeline": (32, 64), "ragged": (16, 8)}[step]
        return math.ceil(tokens / rows) * rows * math.ceil(tokens / keys) * keys

    def test_what_was_wrong(self):
        self.shares(r"`ragged` saves (\d+)%, (\d+)% and (\d+)% of the multiply-adds",
                    *(1 - self.made("ragged", n) / self.made("pipeline", n) for n in (197, 577, 1025)))
        ragged, pipeline = (steps(1025)[name] for name in ("ragged", "pipeline"))
        self.shares(r"issues (\d+)% fewer instructions than `pipeline`",
                    1 - ragged["machine_instructions"] / pipeline["machine_instructions"])
        self.shares(r"\(`math_pipe_throttle`\) for (\d+)% of their time instead of (\d+)%",
                    ragged["stalls"]["math_pipe_throttle"], pipeline["stalls"]["math_pipe_throttle"])
        for tokens in (197, 577, 1025):
            self.assertGreater(steps(tokens)["small tiles"]["us"], steps(tokens)["ragged"]["us"])
        self.shares(r"Twice as many tiles are (\d+)% more instructions",
                    steps(577)["small tiles"]["machine_instructions"] /
                    steps(577)["ragged"]["machine_instructions"] - 1)

    def test_why_warps_wait(self):
        reasons = {"global loads": ("long_scoreboard", "barrier"),
                   "shared memory": ("short_scoreboard", "mio_throttle"), "the warp's own": ("wait",)}
        with open(LESSON, encoding="utf-8") as file:
            rows = re.findall(r"^\| (global loads|shared memory|the warp's own)[^|]*\| (\d+)% \| (\d+)% \| "
                              r"(\d+)% \|$", file.read(), re.MULTILINE)
        self.assertEqual(len(rows), 3)
        for reason, *shares in rows:
            for step, stated in zip(("coalesced K", "registers", "pipeline"), shares, strict=True):
                share = sum(steps(1025)[step]["stalls"].get(name, 0) for name in reasons[reason])
                self.assertAlmostEqual(float(stated), 100 * share, delta=0.51, msg=f"{step}: {reason}")

    def test_products_over_useful_ones(self):
        table = table_with("pipeline", "577", lambda value: value < 2)
        blocks = {"pipeline": (32, 64), "ragged": (16, 8)}  # of rows, of keys
        for (step, tokens), stated in table.items():
            n, (rows, keys) = int(tokens), blocks[step]
            made = math.ceil(n / rows) * rows * math.ceil(n / keys) * keys
            self.assertAlmostEqual(stated, made / n ** 2, delta=0.005001, msg=f"{step} {tokens}")
        self.assertEqual(len(table), 6)

    def test_rates_are_those_of_the_times(self):
        rates = table_with("577", "ragged", lambda value: value > 200)
        for (tokens, step), stated in rates.items():
            rate = 4 * HEADS * int(tokens) ** 2 * 64 / micros()[tokens, step] / 1e6
            # Both are rounded to three digits.
            self.assertAlmostEqual(stated / rate, 1, delta=0.007, msg=f"{step} {tokens}")
        self.assertEqual(len(rates), 8)
