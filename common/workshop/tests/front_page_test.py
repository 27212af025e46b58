"""The numbers of the front page."""
import json
import os

from support import Case, script

README = """# A course
| # | chapter | the step | limit |
|---|---|---|---|
| 1 | [naive](chapters/01_naive/README.md) | as it stands | old |
| 2 | [tiling](chapters/02_tiling/README.md) | tiles |
| 7 | [other](chapters/07_other/README.md) | several | |
<!-- devices:begin -->
old
<!-- devices:end -->
the end
"""


class FrontPage(Case):
    def write(self, folder, number, name, kernels, virtual, **problem):
        os.makedirs(self.path(folder), exist_ok=True)
        lines = [{"name": kernel, "bytes": 8.0, "flops": 1.0, "kernel_lines": 9, "median_us": us,
                  "modelled_limit_us": us, "global": {}} for kernel, us in kernels]
        with open(self.path(f"{folder}/chapter{number}.json"), "w", encoding="utf-8") as file:
            json.dump({"chapter": name, "driver": "580.1", "nvcc": "13.0",
                       "device": {"name": "NVIDIA H200", "virtual": virtual},
                       "runs": [{"problem": problem, "kernels": lines,
                                 "date": "2026-01-02T03:04:05Z"}]}, file)

    def add_run(self, folder, number, name, kernels, peers=(), best=None, best_in_graphs=None, **problem):
        lines = [{"name": kernel, "bytes": 8.0, "flops": 1.0, "median_us": us} for kernel, us in kernels]
        path = self.path(f"{folder}/chapter{number}.json")
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        content["runs"].append({"name": name, "problem": problem, "kernels": lines, "date": "2026-01-02T03:04:05Z",
                                "peers": list(peers), "best": best, "best_in_graphs": best_in_graphs,
                                "versions": {"torch": "2.11", "cudnn": "9.19"}})
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def setUp(self):
        super().setUp()
        self.write("virtual", 1, "01_naive", [("a", 1236.4)], True, tokens=9)
        self.write("virtual", 2, "02_tiling", [("b", 400.0), ("c", 298.0)], True, tokens=9)
        self.write("virtual", 7, "07_other", [("d", 26.0), ("e", 8.0), ("f", 9.0)], True, queries=9)
        with open(self.path("README.md"), "w", encoding="utf-8") as file:
            file.write(README)

    def refresh(self, *flags):
        status, out, err = script("lessons/docs.py", "--results", self.folder, *flags, self.path("README.md"))
        with open(self.path("README.md"), encoding="utf-8") as file:
            return status, out + err, file.read()

    def test_limits_of_the_virtual_gpu(self):
        status, out, text = self.refresh("--check")
        self.assertEqual((status, text), (1, README))
        self.assertIn("stale", out)
        status, _, text = self.refresh()
        self.assertEqual(status, 0)
        self.assertIn("| as it stands | 1,236 µs |\n", text)
        self.assertIn("| tiles | a 1,236 → c 298 µs |\n", text)
        self.assertIn("| several | d 26 → e 8 → f 9 µs |\n", text)
        self.assertIn("No GPU has been measured yet", text)
        self.assertTrue(text.endswith("<!-- devices:end -->\nthe end\n"))
        self.assertEqual(self.refresh("--check")[0], 0)

    def test_predicted_times_stand_in_front_of_bounds(self):
        def step(chapter, name, us, bound):
            return {"chapter": chapter, "name": name, "bound_us": bound, "bound": "issue",
                    "predicted": {"us": us, "error": 0.3, "stalls": {}}}
        with open(self.path("virtual/gains.json"), "w", encoding="utf-8") as file:
            json.dump({"device": {}, "runs": [
                {"title": "attention", "problem": {"batch": 32, "tokens": 577}, "steps": [
                    step("01_naive", "a", 9000.0, 800.0), step("02_tiling", "b", 4500.0, 900.0),
                    step("02_tiling", "c", 6000.0, 1.0)]},
                {"title": "other", "problem": {"preset": "deep"}, "steps": [
                    step("07_other", "d", 30.0, 26.0), step("07_other", "e", 40.0, 8.0)]}]}, file)
        text = self.refresh()[2]
        self.assertIn("| as it stands | 9,000 (limit 800) µs |\n", text)
        self.assertIn("| tiles | a 9,000 → b 4,500 (limit 900) µs, 2 times as fast |\n", text)
        self.assertIn("| several | preset deep: d 30 (limit 26) → e 40 (limit 8) µs; does not pay: e |\n",
                      text)
        self.assertIn("are of a virtual H200, predicted ±30%.", text)

    def test_times_from_the_hosts_first_call_come_from_sweeps_at_the_largest_batch(self):
        def run(batch, times, size=224, **share):
            return {"chapter": "07_other", "problem": {"batch": batch, "height": size, "width": size},
                    "lines": [{"name": name, "us": us, "error": 0.25, **(share if us > 900 else {})}
                              for name, us in zip("defg", times)]}
        runs = [run(1, (1e6, 1e4, 1e4, 50.0), share_run=0.5),
                run(32, (7e8, 7e5, 7e5, 700.0), size=448, share_run=0.1),  # the smaller one is told
                run(32, (6.48e8, 3.2e5, 3.2e5, 241.0), share_run=0.1),
                run(32, (8e8, 8e5, 8e5, 800.0), size=896, share_run=0.1),
                {**run(64, (1.0, 2.0)), "chapter": "02_tiling"}]
        with open(self.path("virtual/sweeps.json"), "w", encoding="utf-8") as file:
            json.dump({"device": {}, "runs": runs}, file)
        text = self.refresh()[2]
        self.assertIn("| several | batch 32, 224 x 224 pixels, from the host's first call to its last "
                      "wait: d 648 s → e 320 ms → f 320 ms → g 241 µs (d to f: a part of the outputs "
                      "ran, extended in a straight line); does not pay: f |\n", text)
        self.assertIn("| tiles | a 1,236 → c 298 µs |\n", text)  # all of its work ran

    def test_a_chapter_with_one_step_that_climbs_from_none(self):
        self.write("virtual", 7, "07_other", [("d", 8.0)], True, queries=9)
        self.assertIn("| several | 8 µs |\n", self.refresh()[2])

    def test_times_of_a_gpu_come_first(self):
        self.write("h200", 1, "01_naive", [("a", 9000.0)], False, tokens=9)
        self.write("h200", 2, "02_tiling", [("b", 3000.0)], False, tokens=9)
        status, _, text = self.refresh()
        self.assertEqual(status, 0)
        self.assertIn("| NVIDIA H200: a 9,000 → b 3,000 µs, 3 times as fast<br>predicted: a 1,236 → c 298 µs |", text)
        self.assertIn("| NVIDIA H200 | 580.1 | 13.0 | 2 problems of 2 chapters | 2026-01-02 |",
                      text)

    def test_a_step_alone_is_no_other_problem(self):
        self.write("h200", 7, "07_other", [("d", 9.0), ("e", 3.0)], False, queries=9)
        self.add_run("h200", 7, "e alone", [("e", 3.0)], queries=9)
        self.assertIn("| 1 problems of 1 chapters |", self.refresh()[2])

    def test_libraries_stand_beside_the_fastest_step(self):
        def best(peer, us, ratio):
            return {"peer": peer, "peer_us": us, "kernel": "e", "kernel_us": 3000.0, "ratio": ratio}
        self.write("h200", 7, "07_other", [("d", 9.0), ("e", 3.0)], False, queries=9)
        self.assertNotIn("libraries", self.refresh()[2])
        peers = [{"name": "eager", "graph_us": 4.0}, {"name": "lib", "by": "NVIDIA", "no_graph": "why"}]
        self.add_run("h200", 7, "quick", [("e", 3.0)], peers=peers, best=best("eager", 9.0, 3.0),
                     best_in_graphs=best("eager", 4.0, 1.336), queries=9)
        # The host's part of eager is no reason to compare in a stream, a library that no graph takes is one.
        self.add_run("h200", 7, "slow", [("e", 3.0)], peers=peers, best=best("lib", 2.0, 0.666),
                     best_in_graphs=best("eager", 4.0, 1.336), queries=9)
        self.add_run("h200", 7, "in a stream", [("e", 3.0)], peers=peers, best=best("eager", 3.5, 1.2),
                     best_in_graphs=best("eager", 4.0, 1.336), queries=9)
        text = self.refresh()[2]
        self.assertIn("On 3 problems the chapter's fastest step was measured in turns with libraries. It is faster than "
                      "the fastest of them on 2, slower on chapter 7's `slow` (0.67).\n", text)
        self.assertIn("the step is faster. PyTorch 2.11 with cuDNN 9.19.\n", text)
        self.assertIn("| 7 | quick | e | 3,000.0 | PyTorch eager | 4.0 | 1.34 |\n", text)
        self.assertIn("| 7 | slow | e | 3,000.0 | NVIDIA lib | 2.0 | 0.67 |\n", text)
        self.assertIn("| 7 | in a stream | e | 3,000.0 | PyTorch eager | 4.0 | 1.34 |\n", text)

    def test_what_is_missing_is_named(self):
        self.write("virtual", 8, "08_more", [("g", 1.0)], True, height=9)
        self.assertEqual(self.refresh()[0], 0)  # there is no lesson yet
        os.makedirs(self.path("chapters/08_more"))
        with open(self.path("chapters/08_more/README.md"), "w", encoding="utf-8") as file:
            file.write("# Lesson\n")
        status, out, _ = self.refresh()
        self.assertEqual(status, 2)
        self.assertIn("no row for chapter 8", out)
        with open(self.path("README.md"), "w", encoding="utf-8") as file:
            file.write("| 1 | [naive](chapters/01) | as it stands | |\n")
        self.assertIn("devices:begin", self.refresh()[1])
