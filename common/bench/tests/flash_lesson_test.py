"""Chapter 13's lesson: its tables by hand agree with each other, with arithmetic and with the results."""
import json
import math
import os
import re
import unittest

from support import ROOT, Case

LESSON = os.path.join(ROOT, "chapters", "13_flash_attention", "README.md")
GAINS = os.path.join(ROOT, "data", "results", "virtual_h200", "gains.json")
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


class FlashLesson(Case):
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

    def test_times_are_those_of_the_results(self):
        with open(GAINS, encoding="utf-8") as file:
            steps = [of for run in json.load(file)["runs"] if run["problem"].get("tokens") == 577
                     for of in run["steps"] if of["chapter"] == "13_flash_attention"]
        if not steps:
            raise unittest.SkipTest("no results of chapter 13: make bench DEVICE=vgpu")
        for step in steps:
            stated = micros()["577", step["name"]]
            self.assertAlmostEqual(stated / step["predicted"]["us"], 1, delta=0.01,
                                   msg=f"{step['name']}: chapters/13_flash_attention/README.md")
