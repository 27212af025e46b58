"""Starters are made from solutions, and none that a student has edited is overwritten."""
import contextlib
import io
import subprocess
import unittest

from support import Case

import starters

SOLUTION = """// before
void f() {
  // STARTER
  //| // HOLE
  //|
  //|   int x = 0;
  // SOLUTION
  int x = 1;
  // END
}

// SOLUTION
int helper;
// END

// STARTER
//| // A hint.
// END
"""
STARTER = "// before\nvoid f() {\n  // HOLE\n\n    int x = 0;\n}\n\n// A hint.\n"


class Starters(Case):
    def git(self, *words):
        subprocess.run(["git", "-C", self.folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                       capture_output=True)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def refresh(self, check=False):
        """(exit status, what is said, exercise.cuh)"""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = starters.refresh(self.path("solution.cuh"), check)
        return status, said.getvalue(), starters.read(self.path("exercise.cuh"))

    def test_what_a_starter_has(self):
        self.assertEqual(starters.starter_of(SOLUTION), STARTER)
        self.assertEqual(starters.starter_of("int x;\n"), "int x;\n")

    def test_wrong_blocks_are_named(self):
        for text, words in (("// END\n", "line 1: '// END' alone"),
                            ("// STARTER\n// STARTER\n", "line 2: '// STARTER' behind // STARTER"),
                            ("// SOLUTION\n// STARTER\n", "line 2: '// STARTER' behind // SOLUTION"),
                            ("// STARTER\nint x;\n// END\n", "line 2: between // STARTER and // SOLUTION"),
                            ("//| int x;\n", "line 1: '//|' stands behind // STARTER only"),
                            ("// SOLUTION\nint x;\n", "'// SOLUTION' has no // END")):
            with self.subTest(text=text), self.assertRaises(starters.Refused) as caught:
                starters.starter_of(text)
            self.assertIn(words, str(caught.exception))

    def test_an_edited_starter_is_left_alone(self):
        self.git("init", "-q")
        self.write("solution.cuh", SOLUTION)
        self.assertEqual(self.refresh()[::2], (0, STARTER))
        self.git("add", ".")
        self.git("commit", "-qm", "a")
        self.write("solution.cuh", SOLUTION.replace("A hint", "Another hint"))
        status, said, text = self.refresh(check=True)
        self.assertEqual((status, text), (1, STARTER))
        self.assertIn("-// A hint.\n+// Another hint.\n", said)
        self.assertIn("Another", self.refresh()[2])  # the committed one is replaced
        self.write("exercise.cuh", "// a student's\n")
        status, said, text = self.refresh()
        self.assertEqual((status, text), (0, "// a student's\n"))
        self.assertIn("has been edited and is left alone", said)

    def test_without_git_nothing_is_overwritten(self):
        self.write("solution.cuh", SOLUTION)
        self.write("exercise.cuh", "// a student's\n")
        self.assertEqual(self.refresh()[2], "// a student's\n")


if __name__ == "__main__":
    unittest.main()
