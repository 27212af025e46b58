"""The reference of limits and counters: what it keeps, and what it says of a difference."""
import json
import os

from support import Case, copy, script

import counters
import reference
import results

ACCESS = {"requests": 100, "sectors": 400, "sectors_per_request": 4.0, "bytes_asked": 12800,
          "bytes_distinct": 12800, "efficiency": 1.0}
NOTHING = {"requests": 0, "sectors": 0, "sectors_per_request": None, "bytes_asked": 0}
RESULT = {
    "chapter": "03_coalescing", "time": "2026-01-01T00:00:00Z", "commit": "abc", "nvcc": "13.0",
    "device": {"name": "NVIDIA H200", "virtual": True},
    "problem": {"source": "random", "batch": 1, "tokens": 197, "seed": 1},
    "kernels": [
        {"name": "coalescing", "median_us": 1234.5, "bytes": 4096.0, "flops": 8192.0,
         "scratch_bytes": 0.0, "modelled_limit_us": 5.25, "pass": True, "counters": {
             "kernel": "coalescing::kernel<64>", "grid": [4, 1, 1], "blocks": 4, "registers": 61,
             "classes": {"fp32": {"warp": 1000, "thread": 32000}},
             "global": {"load": ACCESS, "store": NOTHING},
             "shared": {"load": {"requests": 50, "wavefronts": 50, "conflicts": 0}},
             "tensor_macs": 64, "occupancy": {"blocks_per_sm": 8, "limiter": "warps"},
             "limits": {"L1/shared": 5.25, "L2": "not modelled"},
             "limit": {"name": "L1/shared", "us": 5.25}, "host_seconds": 0.7,
             "lines": [{"line": 4}]}},
        {"name": "total", "median_us": 2345.6, "pass": True, "modelled_limit_us": 5.25}]}


def changed(path, value, result=RESULT):
    """The result with another value at 'kernels.0.counters.registers'."""
    result = copy.deepcopy(result)
    place = result
    *names, last = path.split("/")
    for name in names:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    return result


class Reference(Case):
    def write(self, name, result):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(result, file)
        return self.path(name)

    def compared(self, result):
        """What --check says of this result, with RESULT as the reference."""
        written = script("counters.py", self.path("reference"), self.write("a", RESULT))
        self.assertEqual(written[0], 0)
        return script("counters.py", "--check", self.path("reference"), self.write("b", result))

    def test_nothing_of_the_host_is_kept(self):
        reference = counters.merge([self.write("a", RESULT)])[3]
        text = json.dumps(reference)
        for word in ("1234.5", "time", "commit", "host_seconds", '"lines"', "not modelled", "null"):
            self.assertNotIn(word, text)
        kernel = reference["runs"][0]["kernels"][0]
        self.assertEqual(kernel["global"], {"load": {
            "requests": 100, "sectors": 400, "bytes_asked": 12800, "bytes_distinct": 12800}})
        self.assertEqual(kernel["registers"], 61)

    def test_the_same_run_on_another_day_is_the_same(self):
        later = changed("kernels/0/median_us", 99.0, changed("time", "2027-01-01T00:00:00Z"))
        status, out, _ = self.compared(changed("kernels/0/counters/host_seconds", 3.0, later))
        self.assertEqual(status, 0)
        self.assertIn("2 kernels", out)

    def test_worse_fails_with_both_numbers(self):
        for path, value, words in (
                ("kernels/0/counters/shared/load/conflicts", 12, "shared.load.conflicts: 0 -> 12"),
                ("kernels/0/counters/global/load/sectors", 1600, "load.sectors: 400 -> 1,600"),
                ("kernels/0/counters/registers", 70, "registers: 61 -> 70"),
                ("kernels/0/counters/occupancy/blocks_per_sm", 7, "blocks_per_sm: 8 -> 7"),
                ("kernels/0/modelled_limit_us", 5.5, "modelled_limit_us: 5.25 -> 5.5"),
                ("kernels/0/counters/global/store/sectors", 3, "global.store.sectors: 0 -> 3"),
                ("kernels/0/scratch_bytes", 512.0, "scratch_bytes: 0 -> 512"),
                ("kernels/0/pass", False, "pass: 1 -> 0")):
            with self.subTest(path=path):
                status, _, err = self.compared(changed(path, value))
                self.assertEqual(status, 1)
                self.assertIn(words + ", worse", err)
                self.assertIn("03_coalescing: coalescing (batch 1, tokens 197)", err)
                self.assertIn(": 1 counters are worse", err)

    def test_better_asks_for_a_new_reference(self):
        for path, value, words in (
                ("kernels/0/counters/global/load/sectors", 200, "sectors: 400 -> 200"),
                ("kernels/0/counters/occupancy/blocks_per_sm", 9, "blocks_per_sm: 8 -> 9")):
            with self.subTest(path=path):
                status, _, err = self.compared(changed(path, value))
                self.assertEqual(status, 1)
                self.assertIn(words + ", better", err)
                self.assertIn(": 0 counters are worse", err)
                self.assertIn(reference.RENEW, err)

    def test_neither_better_nor_worse(self):
        for path, value in (("kernels/0/counters/tensor_macs", 128),
                            ("kernels/0/counters/grid", [8, 1, 1]),
                            ("kernels/0/counters/limit/name", "issue")):
            with self.subTest(path=path):
                status, _, err = self.compared(changed(path, value))
                self.assertEqual(status, 1)
                self.assertIn(", changed", err)
                self.assertIn(": 0 counters are worse", err)

    def test_a_small_difference_is_shown(self):
        err = self.compared(changed("kernels/0/modelled_limit_us", 5.250001))[2]
        self.assertIn("modelled_limit_us: 5.25 -> 5.250001, worse", err)

    def test_a_rounding_is_no_difference(self):
        self.assertEqual(self.compared(changed("kernels/0/modelled_limit_us", 5.25 + 1e-12))[0], 0)
        self.assertEqual(self.compared(changed("kernels/0/modelled_limit_us", 5.25 + 1e-6))[0], 1)

    def test_kernels_and_problems_that_come_or_go(self):
        renamed = self.compared(changed("kernels/0/name", "other"))
        self.assertEqual(renamed[0], 1)
        self.assertIn("other (batch 1, tokens 197): new, no reference", renamed[2])
        self.assertIn("coalescing (batch 1, tokens 197): is in the reference, was not run",
                      renamed[2])
        self.assertIn("tokens 577): new", self.compared(changed("problem/tokens", 577))[2])
        status, _, err = self.compared(changed("chapter", "09_other"))
        self.assertEqual(status, 1)
        self.assertIn("09_other: no reference", err)

    def test_another_compiler_is_named(self):
        same = changed("nvcc", "12.8")
        self.assertEqual(self.compared(same)[0], 0)
        status, _, err = self.compared(changed("kernels/0/counters/registers", 60, same))
        self.assertEqual(status, 1)
        self.assertIn("nvcc 13.0, this run of 12.8", err)

    def predicting(self, us, stalls):
        return changed("kernels/0/counters/predicted", {
            "us": us, "error": 0.25, "dram_us": 1.0, "stalls": stalls, "lines": [{"line": 4}]})

    def compared_predictions(self, result, version="V13.0.88"):
        old = self.predicting(100.0, {"wait": 3.0, "selected": 1.0})
        self.assertEqual(script("counters.py", "--ptxas", self.ptxas("V13.0.88"),
                                self.path("reference"), self.write("a", old))[0], 0)
        return script("counters.py", "--check", "--ptxas", self.ptxas(version),
                      self.path("reference"), self.write("b", result))

    def ptxas(self, version):
        path = self.path(version)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {version}\n")
        os.chmod(path, 0o755)
        return path

    def test_predicted_times_may_differ_by_two_percent(self):
        same = {"wait": 3.0, "selected": 1.0}
        self.assertEqual(self.compared_predictions(self.predicting(101.5, same))[0], 0)
        status, _, err = self.compared_predictions(self.predicting(110.0, same))
        self.assertEqual(status, 1)
        self.assertIn("predicted.us: 100 -> 110, worse", err)
        self.assertIn("predicted.us: 100 -> 90, better",
                      self.compared_predictions(self.predicting(90.0, same))[2])
        other = self.compared_predictions(self.predicting(100.0, {"wait": 2.0, "selected": 2.0}))
        self.assertEqual(other[0], 1)
        self.assertIn("predicted.stalls.wait: 0.75 -> 0.5, changed", other[2])
        self.assertEqual(self.compared_predictions(RESULT)[0], 1)  # none any more

    def test_predicted_times_of_another_ptxas_are_not_compared(self):
        status, out, _ = self.compared_predictions(
            self.predicting(200.0, {"wait": 1.0}), "V12.8.93")
        self.assertEqual(status, 0)
        self.assertIn("not compared: the reference is of ptxas V13.0.88, this run of V12.8.93", out)

    def test_a_name_twice_stands_for_two_kernels(self):
        twice = copy.deepcopy(RESULT)
        twice["kernels"][1]["name"] = "coalescing"
        keys = counters.kernels_of(counters.merge([self.write("a", twice)])[3])
        self.assertEqual([name for _, name in keys], ["coalescing", "coalescing #2"])

    def test_bad_input_is_named(self):
        gpu = self.write("gpu", changed("device/virtual", False))
        for files, words in (([gpu], "not of the virtual GPU"),
                             ([self.path("none")], "none: No such"),
                             ([self.write("a", RESULT), self.write("b", RESULT)], "two runs"),
                             ([self.write("list", [])], "no JSON object"),
                             ([self.write("empty", {"device": {"virtual": True}})],
                              "no 'kernels'")):
            with self.subTest(words=words):
                status, _, err = script("counters.py", self.path("reference"), *files)
                self.assertEqual(status, 2)
                self.assertIn(words, err)
        self.assertFalse(os.path.exists(self.path("reference")))


class Files(Case):
    def test_a_file_is_whole_or_not_there(self):
        path = self.path("folder/result.json")
        results.write(path, "first")
        results.write(path, "second")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "second")
        with self.assertRaises(TypeError):
            results.write(path, None)  # something goes wrong while the file is being written
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "second")
        self.assertEqual(os.listdir(self.path("folder")), ["result.json"])
