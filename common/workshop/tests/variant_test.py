"""variant.awk: a step with the lines of a diff changed, and what it says where they do not fit."""
import os
import subprocess
import unittest

from support import ROOT, Case

SCRIPT = os.path.join(ROOT, "common", "make", "variant.awk")
STEP = """#include "shape.h"
#include <cmath>
namespace tiled {
constexpr int kPad = 8;
int a;
int b;
namespace wmma = nvcuda::wmma;
int c;
}  // namespace tiled
"""
DIFF = """Tried and not kept: no padding.
--- a/kernel.cuh
+++ b/kernel.cuh
@@ -3,3 +3,2 @@
 namespace tiled {
-constexpr int kPad = 8;
-int a;
+constexpr int kPad = 0;
@@ -8,1 +7,2 @@ namespace tiled {
 int c;
+int d;
"""


class Variant(Case):
    def made(self, diff, step=STEP):
        """(exit status, the variant, what is said)"""
        for name, text in (("kernel.cuh", step), ("none.diff", diff)):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run(["awk", "-v", "folder=/there", "-v", "name=none", "-f", SCRIPT, "none.diff"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_lines_change_and_names_are_the_variants(self):
        self.assertEqual(self.made(DIFF), (0, STEP.replace('"shape.h"', '"/there/shape.h"')
                                           .replace("namespace tiled {", "namespace tiled {} namespace none { using namespace tiled;")
                                           .replace("kPad = 8", "kPad = 0").replace("int a;\n", "")
                                           .replace("int c;\n", "int c;\nint d;\n"), ""))

    def test_lines_may_have_moved_but_not_changed(self):
        self.assertEqual(self.made(DIFF, "// one more\n" + STEP)[0], 0)
        status, _, said = self.made(DIFF, STEP.replace("int a", "int z"))
        self.assertEqual(status, 1)
        self.assertIn("none.diff: kernel.cuh no longer has these lines:\n  namespace tiled {", said)
        status, _, said = self.made(DIFF, STEP.replace("int c", "int z"))
        self.assertEqual((status, said.splitlines()[1]), (1, "  int c;"))

    def test_lines_that_stand_in_several_places(self):
        diff = DIFF[:DIFF.index("@@")] + "@@ -5,1 +5,1 @@\n-int a;\n+int x;\n"
        twice = STEP.replace("int b;", "int a;")
        self.assertEqual(self.made(diff, twice)[1].count("int x;\nint a;"), 1)  # where the diff says
        status, _, said = self.made(diff, "// one more\n" * 9 + twice)
        self.assertEqual(status, 1)
        self.assertIn("has these lines 2 times; give the hunk more lines:\n  int a;", said)

    def test_what_is_no_diff_is_said(self):
        self.assertIn("changes nothing", self.made("words\n")[2])
        self.assertIn("there is no other.cuh", self.made(DIFF.replace("a/kernel", "a/other"))[2])


if __name__ == "__main__":
    unittest.main()
