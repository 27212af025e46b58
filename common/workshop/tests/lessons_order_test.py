"""Lessons and front page: a reader is asked for a prediction, or warned, before results are shown."""
import glob
import os
import re
import unittest

from support import ROOT

LESSONS = sorted(glob.glob(os.path.join(ROOT, "chapters", "[0-9]*", "README.md")))
ASKED = re.compile(r"^## A prediction$|^\*\*Predict before you read on\.\*\*", re.MULTILINE)
RESULTS = re.compile(r"^<!-- (gains|counters|bytes):begin", re.MULTILINE)
NUMBERS = re.compile(r"^\|.*<!--=", re.MULTILINE)  # a table of stated ones, in a lesson without those


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Order(unittest.TestCase):
    def test_each_lesson_asks_before_it_shows_a_table(self):
        self.assertEqual(len(LESSONS), len(glob.glob(os.path.join(ROOT, "chapters", "[0-9]*"))))
        for path in LESSONS:
            with self.subTest(path=os.path.relpath(path, ROOT)):
                text = read(path)
                asked, shown = ASKED.search(text), RESULTS.search(text) or NUMBERS.search(text)
                self.assertTrue(asked and shown)
                self.assertLess(asked.start(), shown.start())

    def test_the_first_command_builds_and_runs_nothing(self):
        for path in LESSONS:
            number = int(os.path.basename(os.path.dirname(path)).split("_")[0])
            command = next(line for line in read(path).splitlines() if line.startswith("    "))
            self.assertRegex(command, rf"^    make chapter{number} +# predict \(below\), then \./run$")

    def test_the_front_page_warns_before_its_tables_and_folds_them(self):
        text = read(os.path.join(ROOT, "README.md"))
        warned = text.index("give the results away")
        self.assertEqual(re.findall(r"^.*\d µs.*$|^!\[.*$", text[:warned], re.MULTILINE), [])
        folds = [fold.span() for fold in re.finditer(r"<details>.*?</details>", text, re.DOTALL)]
        rows = [row.start() for row in re.finditer(r"^\| \d+ \| \[", text, re.MULTILINE)]
        self.assertEqual(len(rows), len(LESSONS))
        for row in rows:
            self.assertTrue(any(begin < row < end for begin, end in folds), text[row:row + 40])


if __name__ == "__main__":
    unittest.main()
