"""Chapter 16's lesson: its numbers by hand are those of its formulas, of its counters and of the results."""
import json
import os
import re
import unittest

from support import ROOT, Case

LESSON = os.path.join(ROOT, "chapters", "16_cvt", "README.md")
GAINS = os.path.join(ROOT, "data", "results", "virtual_h200", "gains.json")
# In maps of x: the raw ones of q, k and v are 1.5 together.
RAW = 1 + 2 * 0.25
NAIVE, FUSED, BACKWARD = 3 + 4 * RAW, 1 + RAW, 4 * RAW + 2
# dy and map twice, dmap stored and read twice; x three times; dx stored three times and read twice.
NAIVE_BACK = 7 * RAW + 3 + 5


class CvtLesson(Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(LESSON):
            self.skipTest("no lesson of chapter 16")
        with open(LESSON, encoding="utf-8") as file:
            self.text = file.read()
        self.bold = re.findall(r"^- \*\*([\d.]+)\*\*:", self.text, flags=re.MULTILINE)

    def test_the_numbers_that_matter(self):
        self.assertEqual(self.bold, [f"{NAIVE / FUSED:g}", f"{BACKWARD / FUSED:g}", "16"])
        flat = " ".join(self.text.split())
        for words in (f"= {NAIVE:g}.", f"raw maps: {FUSED:g}.", f"that makes {BACKWARD:g}, or",
                      f"{BACKWARD:g} maps instead of {FUSED:g}",
                      f"*Naive, back* moves {NAIVE_BACK:g} maps in fifteen launches."):
            self.assertIn(words, flat)

    def test_sectors_of_weights_over_those_of_x(self):
        rows = {}
        for row in re.findall(r"^\| convolution q \| (\w+) \| load \|(.*)\|$", self.text, re.MULTILINE):
            rows[row[0]] = [cell.strip().replace(",", "") for cell in row[1].split("|")]
        if not rows:
            self.skipTest("no counters in the lesson: make docs")
        (sectors_w, each_w), (sectors_x, each_x) = (
            (int(rows[name][1]), float(rows[name][2])) for name in ("w_q", "x"))
        self.assertEqual((f"{sectors_w / sectors_x:g}", each_w, each_x), (self.bold[2], 32, 2))

    def test_what_it_says_of_the_results(self):
        with open(GAINS, encoding="utf-8") as file:
            runs = [run for run in json.load(file)["runs"] if run["title"].startswith("CvT, projection")]
        if not runs:
            self.skipTest("no results of chapter 16: make bench DEVICE=vgpu")
        times = {"naive": [], "fused": [], "naive, back": [], "backward": []}
        for run in runs:
            for step in run["steps"]:
                if not step["name"].startswith("naive"):  # neither is near its limit
                    self.assertLess(2 * step["bound_us"], step["predicted"]["us"])
                times[step["name"]].append(step["predicted"]["us"])
        flat = " ".join(self.text.split())
        for over, under, after in (("naive", "fused", "as long: bytes"),
                                   ("backward", "fused", "times as long as *fused*."),
                                   ("naive, back", "backward", "times as long as *backward*.")):
            ratios = [f"{one / other:.1f}" for one, other in zip(times[over], times[under], strict=True)]
            self.assertEqual(len(ratios), 3)
            self.assertRegex(flat, rf"It takes {ratios[0]}, {ratios[1]} and {ratios[2]} (times )?{re.escape(after)}")
        self.assertTrue(all(one / other > NAIVE / FUSED for one, other in zip(times["naive"], times["fused"])))


if __name__ == "__main__":
    unittest.main()
