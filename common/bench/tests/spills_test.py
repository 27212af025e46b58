"""common/make/spills.awk, which `make compile-all` holds against what ptxas says of each kernel."""
import os
import subprocess
import tempfile
import unittest

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "make")
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5firstv' for 'sm_80'
ptxas info    : Function properties for _Z5firstv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers
ptxas info    : Compiling entry function '_Z6secondv' for 'sm_86'
ptxas info    : Function properties for _Z6secondv
    {} bytes stack frame, {} bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers
"""


class Spills(unittest.TestCase):
    def told(self, log, known):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("log", log), ("known", known)):
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            done = subprocess.run(
                ["awk", "-v", f"known={folder}/known", "-v", "file=a.cu", "-f", f"{MAKE}/spills.awk", f"{folder}/log"],
                capture_output=True, text=True)
        return done.returncode, done.stdout

    def test_a_spill_is_told_with_its_kernel_and_architecture(self):
        status, text = self.told(LOG.format(16, 12), "")
        self.assertEqual(status, 1)
        self.assertEqual(text, "a.cu: _Z6secondv for sm_86: 16 bytes of stack, 12 bytes of spill stores, "
                               "4 of spill loads\n")

    def test_what_is_known_may_spill_so_much_and_no_more(self):
        for known in ("second sm_86 16 why", "# a comment\n\nsecond any 24 why"):
            self.assertEqual(self.told(LOG.format(16, 12), known), (0, ""))
        for known in ("second sm_86 8 why", "second sm_80 16 why", "third any 16 why", "second any 16"):
            self.assertEqual(self.told(LOG.format(16, 12), known)[0], 1, known)

    def test_no_spill_is_fine_and_no_word_of_ptxas_is_not(self):
        self.assertEqual(self.told(LOG.format(0, 0).replace(" 4 bytes spill", " 0 bytes spill"), ""), (0, ""))
        self.assertEqual(self.told("ptxas info    : 0 bytes gmem\n", ""), (0, ""))
        status, text = self.told("", "")
        self.assertEqual((status, text), (1, "a.cu: ptxas has said nothing\n"))

    def test_each_line_of_the_projects_list_has_its_four_parts(self):
        with open(os.path.join(MAKE, "spills.txt")) as f:
            lines = [line.split(None, 3) for line in f if line.strip() and not line.startswith("#")]
        self.assertTrue(lines)
        for line in lines:
            self.assertEqual(len(line), 4, line)
            self.assertGreater(int(line[2]), 0)


if __name__ == "__main__":
    unittest.main()
