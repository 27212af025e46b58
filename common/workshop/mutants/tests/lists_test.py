"""The lists as they are: all mutants apply, and the README says what was found."""
import json
import os
import tempfile
import unittest

import lists
import report

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
GOOD = {"id": "a", "file": "chapters/01_x/kernel.cuh", "find": "<=", "replace": "<",
        "tests": "chapter1", "cases": "every *"}


class Lists(unittest.TestCase):
    def test_all_mutants_apply_and_name_tests_that_there_are(self):
        listed = lists.read_lists(ROOT)
        self.assertGreaterEqual(len(listed), 100)
        self.assertEqual(lists.wrong_in(ROOT, listed), [])

    def test_the_readme_says_what_was_found(self):
        with open(report.RESULTS, encoding="utf-8") as file:
            results = json.load(file)["mutants"]
        self.assertTrue(report.refresh(report.README, lists.read_lists(ROOT), results, check=True),
                        "`make docs` writes the table of mutants/README.md")


class Wrong(unittest.TestCase):
    """What a list may have wrong is said, in a small tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("chapters/01_x/kernel.cuh", "for (i = 0; i <= n; ++i) sum += a[i] + b[i];\n")
        self.write("chapters/01_x/tests/test.cu", 'TEST_CASE("every "\n  "shape") {}\n')

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def wrong(self, *mutants):
        return lists.wrong_in(self.root, [("kernels", mutant) for mutant in mutants])

    def test_a_good_one(self):
        self.assertEqual(self.wrong(GOOD), [])

    def test_a_chapters_list_needs_not_name_its_tests(self):
        mutant = {name: GOOD[name] for name in ("id", "file", "find", "replace")}
        self.write("chapters/01_x/tests/planted.json", json.dumps({"mutants": [mutant]}))
        self.assertEqual(lists.read_lists(self.root), [("kernels", {**mutant, "tests": "chapter1"})])
        self.write("chapters/01_x/tests/planted.json", "{}")
        with self.assertRaises(lists.Refused):
            lists.read_lists(self.root)

    def test_text_that_is_not_there_once(self):
        for find, count in (("[i]", 2), ("while", 0)):
            self.assertIn(f"has the text to find {count} times",
                          self.wrong({**GOOD, "find": find})[0])

    def test_fields(self):
        self.assertEqual(self.wrong({k: v for k, v in GOOD.items() if k != "file"}),
                         ["a: no 'file'"])
        self.assertEqual(self.wrong({**GOOD, "test": "x"}), ["a: 'test': no such field"])
        self.assertEqual(self.wrong({**GOOD, "replace": "<="}), ["a: changes nothing"])
        self.assertEqual(self.wrong({**GOOD, "equivalent": "yes"}), ["a: equivalent, and why?"])
        self.assertEqual(self.wrong({**GOOD, "replace": ""}), [])
        planted = {"name": "one more", "group": "sum", "caught_by": "element"}
        self.assertEqual(self.wrong({**GOOD, **planted}), [])
        del planted["group"]
        self.assertEqual(self.wrong({**GOOD, **planted}), ["a: has only some of name, group, caught_by"])
        self.assertEqual(self.wrong(GOOD, GOOD), ["a: twice"])

    def test_files_programs_and_cases_that_there_are_not(self):
        self.assertEqual(self.wrong({**GOOD, "file": "x.cuh"}), ["a: no file x.cuh"])
        self.assertEqual(self.wrong({**GOOD, "tests": "chapter1 chapter2"}),
                         ["a: no test program chapter2"])
        self.assertEqual(self.wrong({**GOOD, "cases": "each*"}),
                         ["a: no test case is called 'each*'"])

    def test_patterns_are_those_of_doctest(self):
        self.assertTrue(lists.matches("Every shape", "nothing,every*"))
        self.assertTrue(lists.matches("bits: [1, 2)", "bits: [1*"))
        self.assertFalse(lists.matches("every shape", "every"))


class Report(unittest.TestCase):
    def test_scores_and_names(self):
        def entry(name, verdict, **more):
            return {"id": name, "group": "kernels", "file": "chapters/01_x/kernel.cuh",
                    "verdict": verdict, **more}
        listed = [("kernels", {"id": name, "file": "chapters/01_x/kernel.cuh"}) for name in "abcefg"]
        listed.append(("kernels", {"id": "d", "file": "chapters/01_x/kernel.cuh", "equivalent": "so"}))
        lines = report.lines_of(report.with_unrun(listed, [
            entry("a", "killed"), entry("b", "killed"), entry("c", "survived"), entry("gone", "killed")]))
        self.assertIn("| kernels | 01_x | 2 | 1 | 1 | 3 | 66.6 % |", lines)
        self.assertIn("| kernels | all | 2 | 1 | 1 | 3 | 66.6 % |", lines)
        self.assertIn("- `c` in chapters/01_x/kernel.cuh", lines)
        self.assertIn("- `d` in chapters/01_x/kernel.cuh: so", lines)

    def test_only_what_is_between_the_marks_changes(self):
        text = "head\n" + report.BEGIN + "old\n" + report.END + "tail\n"
        fresh = report.refreshed(text, [], [])
        self.assertTrue(fresh.startswith("head\n" + report.BEGIN))
        self.assertTrue(fresh.endswith(report.END + "tail\n"))
        self.assertNotIn("old", fresh)
        self.assertEqual(report.refreshed(fresh, [], []), fresh)


if __name__ == "__main__":
    unittest.main()
