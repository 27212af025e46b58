"""The glossary and the lessons' links to it: they agree, and what disagrees is named."""
import os
import subprocess
import sys

from support import WORKSHOP, Case

import count_words
import glossary


def entry(name, chapter=3, text="One thing. And another.", also=""):
    return (f"### {name}{f' <!-- also: {also} -->' if also else ''}\n\n{text} Shown in [chapter {chapter}]"
            f"(0{chapter}_x/README.md).\n\n")


TILE = entry("Tile", also="box, boxes")
LINKED = "A [tile](../GLOSSARY.md#tile) is a part.\n"


class Glossary(Case):
    def wrong(self, text, lesson=LINKED):
        return glossary.disagreements("# Words\n\n" + text, {3: lesson})

    def test_the_course_agrees(self):
        done = subprocess.run([sys.executable, os.path.join(WORKSHOP, "lessons", "glossary.py")],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"^\d\d+ terms, each linked from its lesson\n$")

    def test_what_disagrees_is_named(self):
        self.assertEqual(self.wrong(TILE), [])
        self.assertEqual(self.wrong(entry("Bank", also="tile") + TILE), ["Bank: chapter 3 does not link it"])
        self.assertEqual(self.wrong(TILE, LINKED + "[warp](../GLOSSARY.md#warp)"),
                         ["chapter 3 links #warp, which is no term"])
        self.assertEqual(self.wrong(TILE, LINKED + "[box](../GLOSSARY.md#tile)"),
                         ["chapter 3 links #tile 2 times"])
        self.assertEqual(self.wrong(TILE, "[a lane](../GLOSSARY.md#tile)"),
                         ["chapter 3: 'a lane' is no word for #tile"])
        self.assertEqual(self.wrong(TILE + entry("Bank"), LINKED + "[bank](../GLOSSARY.md#bank)"),
                         ["bank: stands behind tile"])
        for sentences, count in (("One thing.", 1), ("One. Two! Three?", 3)):
            self.assertEqual(self.wrong(entry("Tile", text=sentences)),
                             [f"Tile: {count} sentences, not two"])
        self.assertEqual(self.wrong(entry("Tile", 4)), ["Tile: there is no lesson of chapter 4"])
        self.assertIn("Tile: does not end with Shown in", self.wrong("### Tile\n\nOne. Two.\n")[0])
        self.assertIn("1 headings, 0 terms", self.wrong("### Tile\nOne. Two.\n")[0])

    def link(self, lesson, text=TILE):
        return glossary.linked(lesson, glossary.terms_of(text)[0])

    def test_the_first_use_in_prose_is_linked(self):
        before = ("# Tile\n\n    tile code\n\n| tile | table |\n\n<!-- gains:begin 3 -->\ntile\n"
                  "<!-- gains:end -->\n<details>\ntile\n</details>\n`tile` and [a tile](x.md#tile), "
                  "![tile](y.png) textile, tile.cuh, ")
        self.assertEqual(self.link(before + "*tiles* and tile.\n"),
                         before + "*[tiles](../GLOSSARY.md#tile)* and tile.\n")
        self.assertEqual(self.link("Boxes hold tiles.\n"), "[Boxes](../GLOSSARY.md#tile) hold tiles.\n")
        self.assertIsNone(self.link(before))
        code = entry("`mma.sync`")
        self.assertEqual(self.link("By mma and `mma.sync`.\n", code),
                         "By mma and [`mma.sync`](../GLOSSARY.md#mmasync).\n")
        self.assertEqual(self.link("It is sm_90, an SM\n", entry("SM")),
                         "It is sm_90, an [SM](../GLOSSARY.md#sm)\n")

    def test_long_lines_are_wrapped_and_no_word_is_added(self):
        words = "word " * 21
        for begin, later in (("", ""), ("- ", "  "), ("1. ", "   ")):
            lesson = f"Before.\n\n{begin}{words}tile\n{later}end.\n\n    code {words}{words}\n"
            made = self.link(lesson)
            self.assertEqual(" ".join(made.replace("[tile](../GLOSSARY.md#tile)", "tile").split()),
                             " ".join(lesson.split()))
            self.assertEqual(count_words.words(made), count_words.words(lesson))
            paragraph = made.split("\n\n")[1].split("\n")
            self.assertTrue(all(len(line) <= glossary.WIDTH for line in paragraph), made)
            self.assertTrue(all(line.startswith(later) for line in paragraph[1:]), made)
            self.assertTrue(made.endswith(f"\n\n    code {words}{words}\n"))
