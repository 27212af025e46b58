"""What `make compile-all` does with PTX: spills.awk, which it holds against what ptxas says of each kernel, and
assemble.sh, which assembles a kernel of several files once."""
import os
import re
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
        # Neither is a kernel of whose stack nothing is said.
        silent = "ptxas info    : Compiling entry function 'first' for 'sm_86'\n"
        for log in (silent, silent + LOG.format(0, 0).replace(" 4 bytes spill", " 0 bytes spill")):
            status, text = self.told(log, "")
            self.assertEqual((status, text), (1, "a.cu: ptxas has not said how much stack first has for sm_86\n"))
        status, text = self.told("", "")
        self.assertEqual((status, text), (1, "a.cu: ptxas has said nothing\n"))

    def test_each_line_of_the_projects_list_has_its_four_parts(self):
        with open(os.path.join(MAKE, "spills.txt")) as f:
            lines = [line.split(None, 3) for line in f if line.strip() and not line.startswith("#")]
        self.assertTrue(lines)
        for line in lines:
            self.assertEqual(len(line), 4, line)
            self.assertGreater(int(line[2]), 0)


# Says of each kernel what ptxas would, and which kernels the file has.
ASSEMBLER = """#!/bin/sh
for file in "$@"; do case $file in *.ptx) ptx=$file ;; esac; done
case $* in *"-gencode arch=compute_80,code=sm_86 "*) ;; *) echo "unexpected: $*" >&2; exit 1 ;; esac
sed -n "s/.*[.]entry \\(_Z[a-z0-9]*\\).*/Compiling entry function '\\1' for 'sm_86'/p
  s/.*spilled \\([0-9]*\\)/\\1 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/p" "$ptx" |
  sed 's/^/ptxas info : /
    s/.* : \\([0-9]* bytes stack\\)/\\1/' >&2
"""
HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n\n"


def kernel(name, text="ret;", number=0, spilled=0):
    return f"""\t// .globl\t{name}
.visible .entry {name}(
\t.param .u64 {name}_param_0
)
.maxntid 128, 1, 1
{{
\t{{mul.f16x2 %r1, %r1, %r2;
}}
$L__BB{number}_1:
\tbra $L__BB{number}_1; // spilled {spilled}
\t{text}
}}
"""


class Assembling(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("nvcc", ASSEMBLER)
        os.chmod(os.path.join(self.folder, "nvcc"), 0o755)
        self.write("passed", "")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def assembled(self, name, *kernels):
        """(exit status, the kernels that were assembled) of a file of these kernels."""
        self.write(name + ".ptx", HEAD + "\n".join(kernels))
        at = os.path.join(self.folder, name)
        with open(at + ".kernels", "w") as f:
            subprocess.run(["awk", "-v", "list=1", "-f", f"{MAKE}/kernels_in_ptx.awk", at + ".ptx"],
                           stdout=f, check=True)
        done = subprocess.run([f"{MAKE}/assemble.sh", name + ".cu", at + ".ptx", "sm_86", at + ".sm_86",
                               f"{self.folder}/passed"],
                              env=dict(os.environ, NVCC=f"{self.folder}/nvcc"), capture_output=True, text=True)
        with open(at + ".sm_86.log") as f:
            return done.returncode, re.findall(r"function '(\w+)'", f.read())

    def test_a_kernel_of_several_files_is_assembled_once_whatever_its_labels_numbers(self):
        first, second, third = kernel("_Z5firstv"), kernel("_Z6secondv", number=1), kernel("_Z5thirdv")
        self.assertEqual(self.assembled("a", first, second), (0, ["_Z5firstv", "_Z6secondv"]))
        self.assertEqual(self.assembled("b", third, kernel("_Z6secondv", number=7), first), (0, ["_Z5thirdv"]))
        self.assertEqual(self.assembled("c", kernel("_Z5thirdv", number=12)), (0, []))

    def test_one_of_the_same_name_with_another_text_is_another_kernel(self):
        self.assertEqual(self.assembled("a", kernel("_Z5firstv")), (0, ["_Z5firstv"]))
        self.assertEqual(self.assembled("b", kernel("_Z5firstv", "add.s32 %r1, %r1, 1;")), (0, ["_Z5firstv"]))

    def test_one_that_calls_a_function_is_assembled_in_each_file(self):
        for name in ("a", "b"):
            self.assertEqual(self.assembled(name, kernel("_Z5firstv", "call.uni helper;"), kernel("_Z6secondv")),
                             (0, ["_Z5firstv"] + ["_Z6secondv"] * (name == "a")))

    def test_a_file_whose_kernel_spills_fails_and_each_other_that_has_it(self):
        for name in ("a", "b"):
            self.assertEqual(self.assembled(name, kernel("_Z5firstv", spilled=8)), (1, ["_Z5firstv"]))
        self.write("nvcc", "#!/bin/sh\necho broken >&2; exit 1\n")
        self.assertEqual(self.assembled("c", kernel("_Z6secondv")), (1, []))
        self.write("nvcc", ASSEMBLER)
        self.assertEqual(self.assembled("d", kernel("_Z6secondv")), (0, ["_Z6secondv"]))


if __name__ == "__main__":
    unittest.main()
