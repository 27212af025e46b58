"""Each script that draws says its usage, what it misses and which input is damaged, with the exit status for it."""
import io
import os
import sys
import unittest
import unittest.mock

from support import ROOT, Case, contextlib

FIGURES = os.path.join(ROOT, "common", "workshop", "figures")
sys.path.insert(0, FIGURES)
try:
    import matplotlib
except ImportError:
    matplotlib = None

# What stands behind the picture; FILE is damaged.
ARGUMENTS = {
    "bytes_moved": ["FILE"], "fragment_layout": ["72", "5", "FILE"], "tile_walk": ["197", "32", "FILE"],
    "component_shares": ["FILE"],
    "gantt": ["80", "FILE:t"],
    "memories": ["FILE", os.path.join(ROOT, "common", "vgpu", "time", "timing.cpp")],
    "memory_plan": ["FILE"], "over_rows": ["FILE"],
    "roofline": ["FILE", "attention", "1-6"],
    "block_walks": ["8", "Q:load:4", "--", "FILE:t"], "ring_life": ["2:3", "FILE:k:t"],
    "sample_points": ["2x2", "32", "FILE"], "score_blocks": ["128", "64", "FILE"], "step_bytes": ["FILE"],
    "sweeps_embedding": ["FILE"], "sweeps_net": ["FILE"], "tile_layouts": ["x:384", "FILE:t"],
    "tile_life": ["x:768", "hidden:256", "FILE"],
    "warp_banks": ["FILE:load16:0"], "warp_loads": ["FILE:K:load:0"], "warp_phases": ["100", "FILE:k:t"],
}
DAMAGED = {"empty.json": "{}", "list.json": "[]", "cut.json": '{"runs": [', "null.json": "null",
           "other.json": '{"accesses": 3, "kernels": 3, "traceEvents": 4, "runs": [1]}'}


class PictureMains(Case):
    def run_of(self, script, arguments):
        """(exit status, standard error)."""
        said = io.StringIO()
        with unittest.mock.patch.object(sys, "argv", [script, *arguments]), \
                contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = __import__(script).main()
        return status, said.getvalue()

    def arguments(self, script, file):
        return [self.path("a.png"), *(of.replace("FILE", self.path(file)) for of in ARGUMENTS[script])]

    def test_all_scripts_with_the_shared_main_are_here(self):
        found = set()
        for name in os.listdir(FIGURES):
            if name.endswith(".py") and name != "palette.py":
                with open(os.path.join(FIGURES, name), encoding="utf-8") as file:
                    if "palette.main(" in file.read():
                        found.add(name[:-3])
        self.assertEqual(found, set(ARGUMENTS))

    def test_bad_usage(self):
        for script in ARGUMENTS:
            for arguments in ([], [self.path("a.png")]):
                status, said = self.run_of(script, arguments)
                self.assertEqual((status, said.count("\n")), (2, 1), f"{script}: {said}")
                self.assertRegex(said, rf"^usage: {script}\.py PICTURE\.png [A-Z]")

    def test_without_matplotlib(self):
        hidden = {name: None for name in sys.modules if name.split(".")[0] == "matplotlib"}
        with unittest.mock.patch.dict(sys.modules, {**hidden, "matplotlib": None}):
            for script in ARGUMENTS:
                status, said = self.run_of(script, self.arguments(script, "none.json"))
                self.assertEqual((status, said.count("\n")), (3, 1), f"{script}: {said}")
                self.assertRegex(said, rf"^{script}: .*matplotlib.*apt-get install python3-matplotlib$")

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_damaged_input_is_named(self):
        for name, content in DAMAGED.items():
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(content)
        for script in ARGUMENTS:
            for file in (*DAMAGED, "none.json"):
                status, said = self.run_of(script, self.arguments(script, file))
                self.assertEqual((status, said.count("\n")), (2, 1), f"{script} {file}: {said}")
                self.assertRegex(said, rf"^{script}: ")
                self.assertIn(self.path(file), said)
            self.assertNotIn("a.png", self.files())
        status, said = self.run_of("ladder", [self.path("list.json"), self.path("stem")])
        self.assertEqual((status, said.count("\n")), (2, 1), said)


if __name__ == "__main__":
    unittest.main()
