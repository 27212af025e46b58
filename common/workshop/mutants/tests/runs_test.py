"""The runner, on a small tree whose compiler is cp and whose tests are shell scripts."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

RUNNER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mutants.py")

MAKEFILE = """\
all: build/vgpu/vgpu_tests build/vgpu/tests/more
build/vgpu/vgpu_tests: common/vgpu/core/one.cpp common/vgpu/tests/first.cpp
build/vgpu/tests/more: common/vgpu/core/one.cpp common/vgpu/tests/more.cu
build/vgpu/vgpu_tests build/vgpu/tests/more:
\t@mkdir -p $(@D) && ! grep -q 'no code' $^ || { echo error: no code; exit 1; }
\t@! grep -q assert $^ || { echo error: static assertion failed; exit 1; }
\t@(echo '#!/bin/sh'; cat $^) > $@ && chmod +x $@ && echo $@ >> $(LOG)
build/vgpu/libvgpu.so build/vgpu/vgpu:
\t@touch $@
"""
# What a doctest program would say.
SCRIPT = """
# TEST_CASE("%(case)s")
case "$*" in *--test-case=*) chosen=yes ;; *) chosen= ;; esac
if [ %(condition)s ]; then
  printf 'x.cpp:1:\\nTEST CASE:  one that passes\\n\\nx.cpp:2: MESSAGE: skipped\\n'
  printf 'x.cpp:3:\\nTEST CASE:  %(case)s\\n\\nx.cpp:4: ERROR: CHECK( false ) is NOT correct!\\n'
  echo '[doctest] test cases: 1 | 0 passed | 1 failed'; exit 1
fi
echo '[doctest] test cases: 1 | 1 passed | 0 failed'
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("Makefile", MAKEFILE)
        self.write("common/vgpu/core/one.cpp", "a=1\nb=2\nc=3\n")
        self.write("common/vgpu/tests/first.cpp",
                   SCRIPT % {"case": "a is 1", "condition": '"$a" != 1'})
        self.write("common/vgpu/tests/more.cu",
                   SCRIPT % {"case": "b is 2", "condition": '"$b" != 2'})
        self.write("README.md", "<!-- mutants:begin -->\n<!-- mutants:end -->\n")
        self.mutants = []
        subprocess.run(["make", "all", "LOG=/dev/null"], cwd=self.root, check=True)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def add(self, name, find, replace, **more):
        self.mutants.append({"id": name, "file": "common/vgpu/core/one.cpp", "find": find,
                             "replace": replace, "tests": "vgpu_tests", **more})

    def run_all(self, *options, status=0):
        """Results by id, as (verdict, by), and what was run."""
        self.write("common/workshop/mutants/virtual_gpu.json", json.dumps({"mutants": self.mutants}))
        log = os.path.join(self.root, "log")
        done = subprocess.run(
            [sys.executable, RUNNER, "--make", f"make LOG={log}", "--folders", "build/vgpu",
             "build/none", "--results", "results.json", "--readme",
             "README.md", "--jobs", "2", *options],
            cwd=self.root, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.output = done.stdout + done.stderr
        if not os.path.exists(os.path.join(self.root, "results.json")):
            return {}
        with open(os.path.join(self.root, "results.json"), encoding="utf-8") as file:
            return {entry["id"]: (entry["verdict"], entry.get("by", entry.get("why", "")))
                    for entry in json.load(file)["mutants"]}

    def test_verdicts(self):
        self.add("seen-by-its-case", "a=1", "a=7", cases="a is*")
        self.add("seen-by-another-program", "b=2", "b=7", cases="a is*")
        self.add("not-seen", "c=3", "c=7", survives="nobody looks at c")
        self.add("asserted", "c=3", "assert")
        self.add("the-same", "c=3", "c=3 ", equivalent="a blank is nothing")
        results = self.run_all()
        self.assertEqual(results["seen-by-its-case"], ("killed", "vgpu_tests: a is 1"))
        self.assertEqual(results["seen-by-another-program"], ("killed", "more: b is 2"))
        self.assertEqual(results["not-seen"], ("survived", "nobody looks at c"))
        self.assertEqual(results["asserted"], ("killed", "build"))
        self.assertEqual(results["the-same"], ("equivalent", "a blank is nothing"))
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            self.assertIn("| virtual gpu | core | 3 | 1 | 1 | 0 | 75.0 % |", file.read())
        with open(os.path.join(self.root, "common/vgpu/core/one.cpp"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "a=1\nb=2\nc=3\n")

    def test_mistakes_of_the_list(self):
        self.add("no-program", "c=3", "no code")
        results = self.run_all(status=1)
        self.assertEqual(results["no-program"], ("error", "does not compile: error: no code"))
        self.mutants[0]["find"] = "d=4"
        self.run_all(status=2)
        self.assertIn("has the text to find 0 times", self.output)

    def test_a_test_that_fails_without_a_mutant_kills_nothing(self):
        self.write("common/vgpu/core/one.cpp", "a=5\nb=2\nc=3\n")
        subprocess.run(["make", "all", "LOG=/dev/null"], cwd=self.root, check=True)
        self.add("any", "c=3", "c=7")
        verdict, why = self.run_all(status=1)["any"]
        self.assertEqual((verdict, why), ("error", "vgpu_tests fails without a mutant: a is 1"))

    def test_only_what_has_changed_runs_again(self):
        self.add("killed", "a=1", "a=7")
        self.add("survivor", "c=3", "c=7")
        first = self.run_all()
        self.assertIn("2 mutants to run", self.output)
        self.assertEqual(self.run_all(), first)
        self.assertIn("0 mutants to run", self.output)
        # A test that sees c: only the survivor could change.
        self.write("common/vgpu/tests/more.cu",
                   SCRIPT % {"case": "c is 3", "condition": '"$c" != 3'})
        subprocess.run(["make", "all", "LOG=/dev/null"], cwd=self.root, check=True)
        self.assertEqual(self.run_all()["survivor"], ("killed", "more: c is 3"))
        self.assertIn("1 mutants to run", self.output)
        # The test that killed one is another one now.
        self.write("common/vgpu/tests/first.cpp",
                   SCRIPT % {"case": "a is 1", "condition": '"$a" = 5'})
        subprocess.run(["make", "all", "LOG=/dev/null"], cwd=self.root, check=True)
        self.assertEqual(self.run_all()["killed"][0], "survived")
        self.run_all("--fresh")
        self.assertIn("2 mutants to run", self.output)

    def test_some_of_them_leave_the_others_as_they_were(self):
        self.add("one", "a=1", "a=7")
        self.add("two", "b=2", "b=7")
        self.run_all()
        self.run_all("--fresh", "--only", "tw*")
        self.assertIn("1 mutants to run, 2 results are there", self.output)
        self.assertEqual(set(self.run_all()), {"one", "two"})

    def test_quick_runs_the_named_cases_and_records_only_whom_they_kill(self):
        self.add("one", "a=1", "a=7", cases="a is*")
        self.add("two", "b=2", "b=7", cases="a is*")
        self.assertEqual(set(self.run_all("--quick")), {"one"})
        self.assertIn("two: survived", self.output)


if __name__ == "__main__":
    unittest.main()
