"""What lessons quote of predictions: the file, what differs from it, which source lines it names."""
import json
import os
import unittest.mock

from support import Case, contextlib, copy, io

import quoted
from results import Refused

STALLS = {"selected": 1.0, "long_scoreboard": 3.0}


def launch(name, us, **more):
    return {"name": name, "counters": {
        "blocks": 40, "executed_blocks": 10, "sampled": True,
        "limits": {"issue": 2.0, "tensor": 1.0, "DRAM": 9.0, "L2": "not modelled", "fp64": 0.0},
        "predicted": {"us": us, "error": 0.25, "issue_share": 0.5, "stalls": STALLS, "dram_us": 3.0,
                      "machine_instructions": 100.0, "blocks_simulated": 2, "blocks_of_sm": 6,
                      "pipes": {"tensor": {"instructions": 20.0, "share": 0.41234}}, **more}}}


RESULT = {"chapter": "15_gradients", "nvcc": "13.0", "device": {"name": "NVIDIA H200", "virtual": True},
          "problem": {"source": "cat.png", "batch": 32, "tokens": 197, "seed": 1},
          "kernels": [launch("D", 10.0), launch("columns", 30.0), {"name": "tensor cores"},
                      launch("D", 5.0), launch("columns", 20.0), {"name": "deterministic"}]}


class Quoted(Case):
    def write(self, *results):
        paths = [self.path(f"r{i}.json") for i in range(len(results))]
        for path, result in zip(paths, results):
            with open(path, "w", encoding="utf-8") as file:
                json.dump(result, file)
        return paths

    def keep(self, *results):
        with contextlib.redirect_stdout(io.StringIO()):
            quoted.write(self.folder, quoted.merge(self.write(*results), "V13"))

    def test_launches_and_totals(self):
        line, _, total, *_ = quoted.merge(self.write(RESULT))["runs"][0]["lines"]
        self.assertEqual(line, {
            "name": "D", "us": 10.0, "error": 0.25, "issue_share": 0.5,
            "stalls": {"selected": 0.25, "long_scoreboard": 0.75}, "machine_instructions": 100.0,
            "pipes": {"tensor": {"instructions": 20.0, "share": 0.4123}},
            # Of the SM's 6 blocks 2 ran, of the grid's 40 blocks 10; DRAM's is the prediction's.
            "limits": {"issue": {"us": 6.0}, "tensor": {"us": 4.0}, "DRAM": {"us": 3.0}}})
        self.assertEqual(total, {"name": "tensor cores", "us": 40.0, "error": 0.25, "issue_share": 0.5,
                                 "stalls": {"selected": 0.25, "long_scoreboard": 0.75}})

    def test_launches_alike_are_counted(self):
        result = {**RESULT, "kernels": [{**launch("fc1", 10.0), "launches": 12}, {"name": "net"}]}
        one, total = quoted.merge(self.write(result))["runs"][0]["lines"]
        self.assertEqual((one["launches"], one["us"], total["us"]), (12, 10.0, 120.0))

    def test_layers_of_a_network(self):
        result = {name: of for name, of in RESULT.items() if name != "kernels"}
        result["layers"] = [{"name": "conv1", "path": "fused", "predicted_us": 60.0, "median_us": 9.0},
                            {"name": "pixels", "path": "", "predicted_us": 4.0}]
        self.keep(result)
        self.assertEqual(quoted.lines(self.folder, 15, tokens=197), {
            "conv1": {"name": "conv1", "path": "fused", "us": 60.0},
            "pixels": {"name": "pixels", "path": "", "us": 4.0}})
        result["layers"][0]["predicted_us"] = None
        with self.assertRaisesRegex(Refused, "conv1: no predicted time"):
            quoted.merge(self.write(result))

    def test_found_by_problem(self):
        self.keep(RESULT)
        self.assertEqual(quoted.steps(self.folder, 15, tokens=197), {
            "tensor cores": {"D": 10.0, "columns": 30.0, "all": 40.0},
            "deterministic": {"D": 5.0, "columns": 20.0, "all": 25.0}})
        self.assertEqual(quoted.lines(self.folder, 15, batch=32)["deterministic"]["us"], 25.0)
        for chapter, tokens in ((15, 577), (13, 197)):
            self.assertEqual(quoted.lines(self.folder, chapter, tokens=tokens), {})
            self.assertEqual(quoted.steps(self.folder, chapter, tokens=tokens), {})
        self.assertEqual(quoted.lines(self.path("none"), 15), {})

    def test_a_line_is_named_by_its_text(self):
        with open(self.path("k.cuh"), "w", encoding="utf-8") as file:
            file.write("  sync();  // first\nload(a);\n  sync();\n\n")
        lines = [{"file": "k.cuh", "line": number, "share": share}
                 for number, share in ((1, 0.3), (2, 0.2), (2, 0.1), (3, 0.35), (4, 0.04), (9, 0.01))]
        with unittest.mock.patch.object(quoted, "ROOT", self.folder):
            self.assertEqual(quoted.waits_at({"lines": lines + [{"file": "none", "line": 1, "share": 1}]}),
                             {"k.cuh: sync(); #2": 0.35, "k.cuh: sync(); #1": 0.3, "k.cuh: load(a);": 0.3})
            self.assertEqual(quoted.waits_at({"lines": [{"file": "k.cuh", "line": 2, "share": 0.019}]}), {})
            self.assertEqual(quoted.waits_at({"lines": [{"file": self.path("k.cuh"), "line": 2, "share": 1}]}), {})
            kernel = {"name": "k", "counters": {"predicted": {"machine_instructions": 1, "pipes": {}, "us": 1.0,
                                                              "error": 0.25, "issue_share": 0.5, "stalls": {},
                                                              "lines": lines}}}
            with unittest.mock.patch.object(quoted.gains, "limits_of", lambda counters: {}):
                self.assertEqual([name in quoted.lines_of({"chapter": chapter, "kernels": [kernel]})[0]
                                  for chapter in ("03_coalescing", "04_wmma") for name in ("waits_at", "us")],
                                 [True, True, False, True])

    def test_what_differs_is_named(self):
        self.keep(RESULT)
        said = io.StringIO()

        def checked(change, ptxas="V13"):
            result = copy.deepcopy(RESULT)
            change(result["kernels"][1]["counters"]["predicted"])
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                return quoted.check(self.folder, quoted.merge(self.write(result), ptxas))
        self.assertEqual(checked(lambda of: of.update(us=30.3)), 0)
        self.assertEqual(checked(lambda of: of.update(us=33.0)), 1)
        self.assertRegex(said.getvalue(), r"line 2, columns: us: 30.0 -> 33.0\n.*line 3, tensor cores: us")
        self.assertEqual(checked(lambda of: of.update(machine_instructions=101.0)), 0)
        self.assertEqual(checked(lambda of: of.update(machine_instructions=103.0)), 1)
        self.assertEqual(checked(lambda of: of.update(us=99.0), "V12"), 0)
        with contextlib.redirect_stderr(said):
            self.assertEqual(quoted.check(self.path("none"), quoted.merge(self.write(RESULT))), 1)

    def test_what_is_no_such_result_is_refused(self):
        virtual = {**RESULT, "device": {**RESULT["device"], "virtual": False}}
        no_time = {**RESULT, "kernels": [launch("D", None, why="no ptxas")]}
        for result, words in ((virtual, "not of the virtual GPU"), (no_time, "D: no predicted time: no ptxas"),
                              ({"device": RESULT["device"]}, "no 'chapter' in it")):
            with self.assertRaisesRegex(Refused, f"r0.json: {words}"):
                quoted.merge(self.write(result))
        with self.assertRaisesRegex(Refused, "is there twice"):
            quoted.merge(self.write(RESULT, RESULT))
        with self.assertRaisesRegex(Refused, "another device or compiler"):
            quoted.merge(self.write(RESULT, {**RESULT, "nvcc": "12.0"}))
        self.assertFalse(os.path.exists(self.path("quoted.json")))


if __name__ == "__main__":
    unittest.main()
