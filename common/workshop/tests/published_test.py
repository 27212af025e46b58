"""Published and predicted kernel times: the statistics on values worked out by hand, what is
refused, the picture, and the committed tables."""
import copy
import json
import os
import subprocess
import sys
import unittest

from support import ROOT, Case

import published

try:
    import matplotlib
except ImportError:
    matplotlib = None

COMMITTED = os.path.join(ROOT, "data", "results", "published.json")
# Fixed before anything was predicted; a table never changes its half.
JUDGING = {"leimao GEMM fp16", "gau-nernst matmul simt", "spatters mma-matmul",
           "gau-nernst matmul bf16, RTX 5090", "yencal histogram", "leimao CuTe transpose",
           "sylvia-ymlin elementwise", "sylvia-ymlin softmax", "vlejd SGEMM_CUDA on an A100",
           "vlejd few rows on an A100", "vlejd vector by matrix",
           "gau-nernst matmul bf16 sizes, RTX 5090", "gau-nernst matmul cp.async, RTX 5090"}


def kernel(name, us, prediction):
    made = {"kernel": name, "published": us, "unit": "us", "published_us": us,
            "predicted_us": prediction}
    return made if prediction is not None else {**made, "reason": "no such device: z9"}


def content():
    """a: errors 10, 20 and 30%; b: 50 and 0%, and one kernel without a prediction."""
    return {"tables": [
        {"name": "a", "use": "tuning", "gpu": "t4", "source": "s",
         "kernels": [kernel("k1", 100, 110), kernel("k2", 200, 160), kernel("k3", 10, 13)]},
        {"name": "b", "use": "judging", "gpu": "h200", "source": "s",
         "kernels": [kernel("k1", 4, 6), kernel("k2", 8, 8), kernel("k3", 9, None)]}]}


def run(*arguments):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "common", "workshop", "figures", "published.py"),
                           *arguments], text=True, capture_output=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


class Statistics(unittest.TestCase):
    def test_errors_are_shares_of_the_published_time(self):
        self.assertEqual(published.error_percent(100, 120), 20)
        self.assertEqual(published.error_percent(100, 80), 20)
        self.assertEqual(published.error_percent(80, 100), 25)

    def test_tau_by_hand(self):
        self.assertEqual(published.kendall_tau([(1, 5), (2, 6), (3, 7), (4, 8)]), 1)
        self.assertEqual(published.kendall_tau([(1, 8), (2, 7), (3, 6), (4, 5)]), -1)
        # Of six pairs one is the wrong way round: (5 - 1) / 6.
        self.assertAlmostEqual(published.kendall_tau([(1, 6), (2, 5), (3, 7), (4, 8)]), 4 / 6)
        # Two published times are equal: 5 agree of 5 and of 6 that are not tied.
        self.assertAlmostEqual(published.kendall_tau([(1, 1), (1, 2), (3, 3), (4, 4)]),
                               5 / (5 * 6) ** 0.5)
        self.assertAlmostEqual(published.kendall_tau([(1, 1), (2, 1), (3, 3), (4, 4)]),
                               5 / (6 * 5) ** 0.5)

    def test_tau_of_pairs_apart_leaves_out_what_is_close(self):
        close = [(100, 3), (104, 2), (200, 9)]  # 100 and 104 are 4% apart, the wrong way round
        self.assertAlmostEqual(published.kendall_tau(close), 1 / 3)
        self.assertEqual(published.kendall_tau(close, 0.05), 1)
        self.assertAlmostEqual(published.kendall_tau(close, 0.03), 1 / 3)
        # The share is of the smaller one: 105.1 is 5.1% above 100.
        self.assertEqual(published.kendall_tau([(100, 3), (105.1, 2)], 0.05), -1)

    def test_tau_of_nothing(self):
        self.assertIsNone(published.kendall_tau([]))
        self.assertIsNone(published.kendall_tau([(1, 1)]))
        self.assertIsNone(published.kendall_tau([(1, 2), (1, 3)]))
        self.assertIsNone(published.kendall_tau([(100, 1), (101, 2)], 0.05))

    def test_a_half_has_mean_worst_and_tau(self):
        lines = published.summary(published.tables_of(content()), "tuning")
        self.assertEqual(lines[0], "tuning: 1 tables, 3 kernels")
        self.assertEqual(lines[2].split(), ["a", "t4", "3/3", "20.0%", "30.0%", "1.00", "1.00"])
        self.assertEqual(lines[3].strip(), "all: mean 20.0%, worst 30.0% (a, k3)")
        self.assertEqual(lines[4].strip(), "within 25%: 67% of them, within 40%: 100%")
        lines = published.summary(published.tables_of(content()), "judging")
        self.assertEqual(lines[2].split(), ["b", "h200", "2/3", "25.0%", "50.0%", "1.00", "1.00"])
        self.assertEqual(lines[3].strip(), "all: mean 25.0%, worst 50.0% (b, k1)")
        self.assertEqual(lines[4].strip(), "within 25%: 50% of them, within 40%: 50%")

    def test_the_mean_of_a_half_is_over_its_kernels(self):
        both = content()
        both["tables"][1]["use"] = "tuning"
        lines = published.summary(published.tables_of(both), "tuning")
        self.assertEqual(lines[-2].strip(), "all: mean 22.0%, worst 50.0% (b, k1)")


class Script(Case):
    def write(self, data):
        path = self.path("published.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        return path

    def test_prints_both_halves_and_what_is_missing(self):
        status, out, err = run(self.write(content()))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("tuning: 1 tables, 3 kernels\n", out)
        self.assertIn("judging: 1 tables, 3 kernels\n", out)
        self.assertTrue(out.endswith("not predicted:\n  b: k3: no such device: z9\n"), out)

    def test_without_predictions_it_says_so_and_draws_nothing(self):
        data = content()
        for table in data["tables"]:
            table["kernels"] = [{**of, "predicted_us": None, "reason": "later"}
                                for of in table["kernels"]]
        path = self.write(data)
        status, out, err = run(path, self.path("picture"))
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out, f"{path}: 2 tables, 6 kernels, nothing is predicted yet; "
                         "no picture\n")
        self.assertEqual(self.files(), ["published.json"])

    def refused(self, change, *said):
        data = copy.deepcopy(content())
        change(data)
        status, out, err = run(self.write(data))
        self.assertEqual((status, out), (2, ""))
        for text in said:
            self.assertIn(text, err)

    def test_bad_tables_are_named_with_the_value_and_what_is_right(self):
        def first(data):
            return data["tables"][0]["kernels"][0]
        self.refused(lambda data: data.pop("tables"), "has no list of tables")
        self.refused(lambda data: data["tables"][0].update(use="both"),
                     'a: use is "both": must be tuning or judging')
        self.refused(lambda data: data["tables"][0].pop("gpu"), "a table without gpu")
        self.refused(lambda data: first(data).update(unit="hours"),
                     'a: k1: unit is "hours": must be one of us ms gflops tflops')
        self.refused(lambda data: first(data).update(published=-1),
                     "a: k1: published is -1: must be a number above 0")
        self.refused(lambda data: first(data).update(predicted_us="fast"),
                     'a: k1: predicted_us is "fast": must be a number above 0 or null')
        self.refused(lambda data: first(data).update(predicted_us=None),
                     "a: k1: predicted_us is null without a reason")
        self.refused(lambda data: first(data).update(unit="tflops"),
                     "a: k1: flop is null: must be a number above 0")
        self.refused(lambda data: first(data).update(kernel="k2"), "k2: stands there twice")

    def test_a_conversion_that_is_wrong_is_refused(self):
        # 2 TFLOP at 4 TFLOP/s take half a second.
        self.refused(lambda data: data["tables"][0]["kernels"][0].update(
            unit="tflops", published=4, flop=2e12, published_us=400000),
            "a: k1: published_us is 400000: 4 tflops are 500000")
        data = content()
        data["tables"][0]["kernels"][0].update(unit="gflops", published=4000, flop=2e12,
                                               published_us=500000)
        self.assertEqual(run(self.write(data))[0], 0)

    def test_bad_usage_and_files(self):
        self.assertEqual(run()[0], 2)
        self.assertEqual(run("a", "b", "c")[0], 2)
        status, _, err = run(self.path("none.json"))
        self.assertEqual(status, 2)
        self.assertIn("none.json", err)
        with open(self.path("broken.json"), "w", encoding="utf-8") as file:
            file.write("{")
        status, _, err = run(self.path("broken.json"))
        self.assertEqual(status, 2)
        self.assertIn("broken.json", err)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn_filled_where_judging_the_same_bytes_twice(self):
        path, pictures = self.write(content()), []
        for _ in range(2):
            status, _, err = run(path, self.path("picture"))
            self.assertEqual((status, err), (0, ""))
            with open(self.path("picture.svg"), "rb") as file:
                pictures.append(file.read())
        self.assertEqual(pictures[0], pictures[1])
        # matplotlib writes a marker's face and edge as a style.
        colors = published.palette.CHAPTERS
        self.assertNotIn(f"fill: {colors[0]}".encode(), pictures[0])
        self.assertIn(f"stroke: {colors[0]}".encode(), pictures[0])
        self.assertIn(f"fill: {colors[1]}".encode(), pictures[0])


class Committed(unittest.TestCase):
    def test_there_are_enough_tables_and_the_split_stays(self):
        with open(COMMITTED, encoding="utf-8") as file:
            tables = published.tables_of(json.load(file))
        self.assertGreaterEqual(len(tables), 10)
        self.assertGreaterEqual(len({table["gpu"] for table in tables}), 8)
        self.assertGreaterEqual(sum(len(table["kernels"]) for table in tables), 100)
        self.assertEqual({table["name"] for table in tables if table["use"] == "judging"}, JUDGING)

    def test_the_judging_half_has_all_kinds_and_most_gpus(self):
        with open(COMMITTED, encoding="utf-8") as file:
            tables = json.load(file)["tables"]
        for name in ("kind", "timing", "remarks", "conversion"):
            self.assertFalse([table["name"] for table in tables if not table.get(name)], name)
        judged = [table for table in tables if table["use"] == "judging"]
        self.assertEqual({table["kind"] for table in judged}, {table["kind"] for table in tables})
        self.assertGreaterEqual(len({table["gpu"] for table in judged}), 7)


if __name__ == "__main__":
    unittest.main()
