"""Numbers that sentences state: those of the course, and what the script says of wrong ones."""
import pathlib
import unittest

from support import ROOT, Case, script

import results
import stated


class Stated(Case):
    def new(self, text):
        return stated.Text(text).new

    def refused(self, text, words):
        with self.assertRaises(stated.Refused) as caught:
            stated.Text(text)
        self.assertIn(words, str(caught.exception))

    def test_texts_of_the_course(self):
        texts = [path for pattern in ("*.md", "chapters/*.md", "chapters/*/*.md", "common/*/*.md", "common/*/*/*.md")
                 for path in pathlib.Path(ROOT).glob(pattern) if stated.MARKED.search(path.read_text(encoding="utf-8"))]
        self.assertGreater(len(texts), 10)
        for path in texts:
            with self.subTest(path=path.name):
                text = path.read_text(encoding="utf-8")
                numbers = stated.Text(text)
                self.assertEqual(numbers.wrong, [])
                self.assertTrue(numbers.new == text, "stale: make docs")

    def test_a_number_is_written_as_it_was(self):
        for old, expression, new in (("3.4", "10 / 3", "3.3"), ("12", "9.6", "10"), ("1,234", "5678", "5,678"),
                                     ("1,234", "99", "99"), ("99", "1234.5", "1,234"), ("5678", "1234", "1234"),
                                     ("7", "digits(87.6, 1)", "90"), ("-1.5", "-2", "-2.0")):
            with self.subTest(old=old, expression=expression):
                self.assertEqual(self.new(f"a **<!--={expression}-->{old}<!---->**."),
                                 f"a **<!--={expression}-->{new}<!---->**.")

    def test_an_example_in_backticks_stays(self):
        self.assertEqual(self.new("`<!--=a-->3<!---->` and <!--=4-->3<!---->"), "`<!--=a-->3<!---->` and <!--=4-->4<!---->")

    def test_names_stand_in_a_comment(self):
        text = ("It is <!--=b-->3<!---->\n\n<!-- numbers\na = [1,\n     2]\n"
                "b = sum(a[i] for i in range(2))  # both\ntrue: b > 2\n-->\n")
        self.assertEqual(self.new(text), text)
        self.assertEqual(stated.Text(text).wrong, [])
        self.assertIn("does not hold (False): b > 3", stated.Text(text.replace("b > 2", "b > 3")).wrong[0])
        self.assertIn("does not hold (3)", stated.Text(text.replace("b > 2", "b")).wrong[0])

    def test_a_table_of_the_text(self):
        text = ("| step | µs | wait |\n|---|--:|---|\n| a b | 1,200 | 3% |\n| c | <!--=1-->1<!----> | |\n\n"
                "| name | of |\n|---|---|\n| a | b |\n\n"
                'A <!--=table("step")["a b"]["µs"]-->1,200<!---->, B <!--=len(table("step")["c"])-->1<!---->.\n')
        self.assertEqual(self.new(text), text)
        self.assertIn("A <!--=table(\"step\")[\"a b\"][\"µs\"]-->1,300<!---->", self.new(text.replace("| 1,200", "| 1,300")))
        self.refused('<!--=table("step")-->3<!---->', "0 tables whose first head is 'step'")

    def test_what_is_refused(self):
        self.refused("<!--=a-->3<!---->", "name 'a' is not defined")
        self.refused("<!--=1-->three<!---->", "'three' is no number")
        self.refused("<!--='1'-->3<!---->", "is no number but '1'")
        self.refused("<!--=1 / 0-->3<!---->", "division by zero")
        self.refused("<!--=1 +-->3<!---->", "invalid syntax")
        self.refused("<!--=steps('no such run')-->3<!---->", "no run of no such run")
        self.refused("<!--=steps('attention')['no such step']-->3<!---->", "there is no 'no such step'")
        self.refused("<!--=len(validated(99))-->3<!---->", "validation.json has no chapter 99")
        self.refused("<!--=photo(5)['wmma'].no_such-->3<!---->", "no field 'no_such': there are name,")
        self.refused("<!--=open('x')-->3<!---->", "name 'open' is not defined")
        self.refused("<!-- numbers\na = 1\n-->", "nothing uses a")
        self.refused("<!-- numbers\na is 1\n-->", "'a is 1': a line reads")
        self.refused("<!-- numbers\nsum = 1\n-->", "'sum' is defined twice")

    def test_a_line_must_not_begin_with_a_marker(self):
        for begin, wrong in (("", True), ("  ", True), ("> ", True), ("- ", True), ("1. ", True), ("**", False), ("a ", False)):
            with self.subTest(begin=begin):
                said = stated.Text(f"It is\n{begin}<!--=1-->1<!---->.").wrong
                self.assertEqual("a line must not begin with a marker" in "".join(said), wrong)

    def test_variants_of_one_name(self):
        for chapter in (3, 6):
            self.assertEqual(results.number_of(stated.Known.steps("attention", chapter)["no padding"].chapter), chapter)


class Docs(Case):
    """The script around it."""

    def refresh(self, text, *flags):
        with open(self.path("README.md"), "w", encoding="utf-8") as file:
            file.write(text)
        status, out, err = script("lessons/docs.py", *flags, self.path("README.md"))
        with open(self.path("README.md"), encoding="utf-8") as file:
            return status, out + err, file.read()

    def test_a_file_is_written_or_said_to_be_stale(self):
        old, new = "It is <!--=3-->2<!---->\n", "It is <!--=3-->3<!---->\n"
        status, said, text = self.refresh(old, "--check")
        self.assertEqual((status, text), (1, old))
        self.assertIn(f"-{old}+{new}", said)
        self.assertEqual(self.refresh(old)[::2], (0, new))
        self.assertEqual(self.refresh(new, "--check"), (0, "texts with numbers up to date: 1\n", new))

    def test_what_does_not_hold_is_said_and_numbers_are_written_all_the_same(self):
        claim = "\n<!-- numbers\ntrue: 2 > 3\n-->\n"
        status, said, text = self.refresh("It is <!--=3-->2<!---->\n" + claim)
        self.assertEqual((status, text), (1, "It is <!--=3-->3<!---->\n" + claim))
        self.assertIn("does not hold (False): 2 > 3", said)

    def test_bad_input_is_named(self):
        self.assertEqual(self.refresh("It is <!--=a-->2<!---->\n")[0], 2)
        status, _, err = script("lessons/docs.py", self.path("none.md"))
        self.assertEqual(status, 2)
        self.assertIn("none.md", err)
        with open(self.path("result.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        status, _, err = script("lessons/docs.py", f"{self.path('README.md')}={self.path('result.json')}")
        self.assertEqual(status, 2)
        self.assertIn("1 results, but 0 times a line '<!-- counters:begin", err)


if __name__ == "__main__":
    unittest.main()
