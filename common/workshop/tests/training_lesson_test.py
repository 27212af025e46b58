"""Chapter 18's lesson: its numbers by hand are those of its table, of the net's shape and of Wilson's interval."""
import math
import os
import re
import unittest

from support import ROOT, Case

LESSON = os.path.join(ROOT, "chapters", "18_training", "README.md")
STAGES = ((7, 32, 1), (3, 64, 32), (3, 96, 64))  # kernel, width and channels that come in
CLASSES, MLP = 10, 2


def weights():
    """Of the net in net/shape.h, one block a stage."""
    total = 0
    for kernel, width, channels in STAGES:
        norm = 2 * width
        total += width * channels * kernel**2 + width + norm       # the embedding and its norm
        total += 3 * (9 * width + norm) + 4 * (width**2 + width)   # projection; q, k, v and out
        total += 2 * norm + 2 * MLP * width**2 + MLP * width + width
    last = STAGES[-1][1]
    return total + last + 2 * last + last * CLASSES + CLASSES      # class token, norm, head


class TrainingLesson(Case):
    def setUp(self):
        super().setUp()
        with open(LESSON, encoding="utf-8") as file:
            self.text = file.read()
        self.flat = " ".join(self.text.split())
        rows = re.findall(r"^\| ([\w ]+) \| (\d+) \| ([\d.]*) \| ([\d.]*) \| ([\d.]*) \| ([\d.]*) \|$",
                          self.text, re.MULTILINE)
        self.rows = {name: [float(cell or 0) for cell in cells] for name, *cells in rows}

    def test_the_numbers_that_matter(self):
        if not self.rows:
            self.skipTest("no table in the lesson: make docs")
        moved = {name: sum(row[1:4]) for name, row in self.rows.items()}
        everything = self.rows["all"]
        self.assertEqual(re.findall(r"^- \*\*([\d.]+%?)\*\*:", self.text, re.MULTILINE),
                         [f"{everything[4]:g}", f"{100 * moved['linear layers'] / moved['all']:.0f}%",
                          f"{self.rows['attention'][4]:g}"])
        six = {name: moved[name] for name in ("linear layers", "LayerNorm", "convolutional projection",
                                              "attention", "embedding", "AdamW")}
        self.assertEqual((max(six, key=six.get), min(six, key=six.get)), ("linear layers", "attention"))
        self.assertEqual(max(self.rows, key=lambda name: self.rows[name][4]), "attention")
        others = [row[0] for name, row in self.rows.items() if name not in ("linear layers", "all")]
        self.assertGreater(self.rows["linear layers"][0], max(others))
        for words in (f"All of that is {everything[0]:g} launches", f"no launch is long: {everything[0]:g} of them"):
            self.assertIn(words, self.flat)
        self.assertLess(self.rows["convolutional projection"][4], 3.2)

    def test_weights_and_what_adamw_moves(self):
        self.assertIn(f"gradients of {weights():,} weights", self.flat)
        if self.rows:
            self.assertEqual(f"{4 * 7 * weights() / 2**20:.1f}", f"{self.rows['AdamW'][3]:.1f}")

    def test_the_interval_of_the_linear_classifier(self):
        found = re.search(r"names (\d+) of the held-out images right\. The 95% interval goes from (\d+)% to (\d+)%",
                          self.flat)
        right, z, n = int(found[1]), 1.96, 100
        p = right / n
        centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        self.assertEqual([f"{100 * (centre + sign * half) / (1 + z * z / n):.0f}" for sign in (-1, 1)],
                         list(found.groups()[1:]))


if __name__ == "__main__":
    unittest.main()
