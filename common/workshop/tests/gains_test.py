"""Predicted times: of launches, of steps, what each step bought, and the tables of it in READMEs."""
import json
import os

from support import Case, copy, script

import front_page
import gain_tables
import gains
import predictions
import problems
from results import Refused

STALLS = {"selected": 1.0, "not_selected": 0.0, "long_scoreboard": 3.0}


def launch(us, **more):
    return {"predicted": {"us": us, "error": 0.25, "dram_us": 1.0, "issue_share": 0.5,
                          "lines": [{"line": 3}], "stalls": STALLS, **more},
            "limits": {"L1/shared": us / 2, "DRAM": 0.1, "L2": "not modelled"}}


def line(name, counters=None):
    return {"name": name, "bytes": 8.0, **({"counters": counters} if counters else {})}


NOTHING = {"limits": {"DRAM": 1.0}, "predicted": {"us": None, "why": "no ptxas"}}
DEVICE = {"name": "NVIDIA H200", "virtual": True}
NAIVE = {"chapter": "01_naive_attention", "nvcc": "13.0", "device": DEVICE,
         "problem": {"source": "random", "batch": 32, "tokens": 577, "seed": 1},
         "kernels": [line("scores", launch(60.0)), line("softmax", launch(20.0, stalls={"wait": 9})),
                     line("attention")]}
TILING = {**NAIVE, "chapter": "02_tiling", "kernels": [
    line("scores", launch(60.0)), line("naive", launch(80.0)), line("tiling", launch(40.0))],
    "ratios": [{"after": "tiling"}]}


def steps(*times):
    """Steps a, b, c ... of gains.json with these times in µs; None has no prediction."""
    return [{"chapter": "07_x", "name": chr(ord("a") + i), "bound_us": 1.0, "bound": "issue",
             "predicted": {"us": us, "error": 0.25, "issue_share": 0.5, "stalls": {"wait": 0.6}}
             if us else {"why": "no ptxas"}} for i, us in enumerate(times)]


class Predictions(Case):
    def test_shares_and_nothing_of_lines(self):
        kept = predictions.of_launch(launch(60.0))
        self.assertEqual(kept["stalls"], {"selected": 0.25, "long_scoreboard": 0.75})
        self.assertEqual((kept["us"], kept["error"]), (60.0, 0.25))
        self.assertNotIn("lines", kept)
        self.assertEqual(predictions.of_launch({}), {})
        self.assertEqual(predictions.of_launch({"predicted": None}), {})

    def test_a_total_is_the_sum_of_its_launches(self):
        of = predictions.of_kernels(NAIVE)
        self.assertEqual(of[2]["us"], 80.0)
        self.assertEqual(of[2]["stalls"], {"selected": 0.1875, "long_scoreboard": 0.5625,
                                           "wait": 0.25})  # weighted by time, 60 to 20
        self.assertAlmostEqual(sum(of[2]["stalls"].values()), 1)

    def test_without_one_launch_there_is_no_total(self):
        lines = [line("scores", launch(60.0)), line("softmax", NOTHING), line("attention")]
        self.assertEqual(predictions.of_kernels({"kernels": lines})[2], {"why": "no ptxas"})
        self.assertEqual(predictions.total([{"us": 1.0}, {}]), {})

    def test_a_step_of_one_launch_is_no_stage_of_the_next_steps_total(self):
        lines = [line("packed", launch(50.0)), line("scores", launch(60.0)), line("softmax", launch(20.0)),
                 line("sorted")]
        for ratios, us in (([{"before": "packed", "after": "sorted"}], 80.0), ([], 130.0)):
            self.assertEqual(predictions.of_kernels({"kernels": lines, "ratios": ratios})[3]["us"], us)

    def test_words_for_ratios(self):
        for before, after, words in ((10, 5, "2 times as fast"), (10, 10.1, "no faster"),
                                     (10, 15, "1.5 times as slow"),
                                     (103, 100, "1.03 times as fast"), (5000, 4, "1,250 times")):
            self.assertIn(words, predictions.times(before, after))

    def test_the_version_of_ptxas(self):
        path = self.path("ptxas")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho release 13.0, V13.0.88\necho Build cuda_13.0.r13.0\n")
        with self.assertRaisesRegex(Refused, "ptxas --version"):
            predictions.ptxas_version(path)  # may not be executed
        os.chmod(path, 0o755)
        self.assertEqual(predictions.ptxas_version(path), "V13.0.88")
        self.assertIsNone(predictions.ptxas_version(""))


class Gains(Case):
    def write(self, name, result):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(result, file)
        return self.path(name)

    def test_chapters_of_one_problem_are_one_ladder(self):
        merged = gains.merge([self.write("b", TILING), self.write("a", NAIVE)])
        self.assertEqual(len(merged["runs"]), 1)
        found = {step["name"]: step for step in merged["runs"][0]["steps"]}
        self.assertEqual(list(found), ["attention", "tiling"])
        self.assertEqual(found["attention"]["predicted"]["us"], 80.0)
        self.assertEqual((found["attention"]["bound_us"], found["attention"]["bound"]),
                         (40.0, "L1/shared"))  # 60/2 and 20/2
        self.assertEqual(gains.short(merged["runs"][0]), "batch 32, 577 tokens")
        self.assertEqual(gains.error_of(merged), 0.25)

    def test_gradients_are_no_step_of_attentions_ladder(self):
        backward = {**NAIVE, "chapter": "15_gradients",
                    "problem": {**NAIVE["problem"], "heads": 12, "tokens": 1025}}
        merged = gains.merge([self.write("a", {**NAIVE, "problem": backward["problem"]}),
                              self.write("b", backward)])
        self.assertEqual([(run["title"], gains.short(run)) for run in merged["runs"]],
                         [("attention", "batch 32, 1025 tokens"),
                          ("gradients", "batch 32, 12 heads, 1,025 tokens")])

    def test_a_components_gradients_stand_by_themselves(self):
        stage = {**line("convolutions", launch(30.0)), "bytes": 7}
        total = {**line("fused", launch(30.0)), "bytes": 7}
        del total["counters"]
        naive, back = ({**total, "name": name} for name in ("naive", "fused, back"))
        result = {**NAIVE, "chapter": "16_cvt", "kernels": [stage, naive, stage, total, stage, back],
                  "ratios": [{"before": "naive", "after": "fused"}],
                  "problem": {"component": "projection", "batch": 2, "height": 5, "width": 6,
                              "channels": 8, "dtype": "fp16"}}
        merged = gains.merge([self.write("a", result)])
        self.assertEqual([(run["title"], [step["name"] for step in run["steps"]])
                          for run in merged["runs"]],
                         [("CvT, projection", ["naive", "fused"]),
                          ("CvT, projection, backward", ["fused, back"])])
        self.assertEqual({gains.short(run) for run in merged["runs"]},
                         {"batch 2, 5 x 6 tokens, 8 channels, fp16"})
        # With a naive way back beside them gradients are a ladder of their own.
        result["kernels"][2:2] = [stage, {**total, "name": "naive, back"}]
        result["ratios"].append({"before": "naive, back", "after": "fused, back"})
        merged = gains.merge([self.write("a", result)])
        self.assertEqual([(run["title"], [step["name"] for step in run["steps"]])
                          for run in merged["runs"]],
                         [("CvT, projection", ["naive", "fused"]),
                          ("CvT, projection, backward", ["naive, back", "fused, back"])])

    def test_of_a_components_products_only_the_speed_is_told(self):
        whole = {**line("tiled", launch(2.0)), "flops": 3e9}
        naive = {**whole, "name": "naive"}
        result = {**NAIVE, "chapter": "16_cvt", "kernels": [naive, whole], "ratios": [],
                  "problem": {"component": "linear", "preset": "cvt13-1", "rows": 6}}
        merged = gains.merge([self.write("a", NAIVE), self.write("b", result)])
        self.assertEqual([run["title"] for run in merged["runs"]], ["attention"])
        [product] = merged["products"]
        self.assertEqual((product["title"], [step["name"] for step in product["steps"]]),
                         ("CvT, linear", ["tiled"]))
        self.assertEqual(len(gains.leaves(merged)), 2)
        table = gain_tables.block(merged, 16, 16, "lines")
        us = product["steps"][0]["predicted"]["us"]
        lines = problems.kernel_lines(16, "linear tiled")
        self.assertIn(f"| tiled | {3e3 / us:.3g} | {lines} | tile.cuh |", table)
        with self.assertRaisesRegex(gains.Refused, "gains:begin 16: no such chapter"):
            gain_tables.block(merged, 16, 16, None)

    def test_first_kernels_are_ladders_by_their_first_word(self):
        names = ("grey columns", "grey rows", "sum threads", "sum blocks", "blur")
        result = {**NAIVE, "chapter": "00_a_first_kernel", "ratios": [],
                  "kernels": [{**line(name, launch(30.0)), "bytes": 7} for name in names],
                  "problem": {"source": "a photo", "height": 1024, "width": 2048}}
        tried = {**result, "kernels": [{**line("sum serial", launch(90.0)), "bytes": 7,
                                        "variant": 1}]}
        merged = gains.merge([self.write("a", result), self.write("b", tried)])
        self.assertEqual([(run["title"], [step["name"] for step in run["steps"]])
                          for run in merged["runs"]],
                         [("a first kernel, grey", ["grey columns", "grey rows"]),
                          ("a first kernel, sum", ["sum threads", "sum blocks"]),
                          ("a first kernel, blur", ["blur"])])
        self.assertEqual(gains.short(merged["runs"][1]), "1,024 x 2,048 pixels")
        self.assertIn("sum serial", gain_tables.block(merged, 0, 0, "variants of sum blocks"))

    def test_what_was_tried_and_not_kept_is_no_step_of_the_ladder(self):
        tried = {**line("in fours", launch(90.0)), "variant": 1}  # a step that no file is named after
        merged = gains.merge([self.write("a", NAIVE), self.write("b", TILING),
                              self.write("c", {**TILING, "kernels": [tried], "ratios": []})])
        [run] = merged["runs"]
        self.assertEqual([step["name"] for step in run["steps"]], ["attention", "tiling"])
        self.assertEqual([(step["name"], step["predicted"]["us"]) for step in run["variants"]],
                         [("in fours", 90.0)])
        self.assertEqual([step for _, step in gains.leaves(merged)],
                         ["01_naive_attention attention", "02_tiling tiling", "02_tiling in fours"])
        text = gain_tables.block(merged, 2, 2, "variants of tiling")
        self.assertIn("| step | predicted ±25%, µs | beside tiling | warps wait most for |\n", text)
        self.assertIn("\n| tiling | 40 |  | long_scoreboard 75% |\n"
                      "| in fours | 90 | 2.2 times as slow | long_scoreboard 75% |\n", text)
        self.assertEqual(text, gain_tables.block(merged, 2, 2, "variants of tiling: in fours"))
        self.assertNotIn("fours", gain_tables.block(merged, 2, 2, None))
        for first, step in ((1, "attention"), (2, "naive"), (2, "tiling: in fives"),
                            (2, "tiling: in fours, in fives")):
            with self.assertRaisesRegex(Refused, f"{first} variants of {step}: no such step or no"):
                gain_tables.block(merged, first, first, f"variants of {step}")

    def test_a_nets_steps_are_its_choices_and_a_line_counts_for_all_its_launches(self):
        def net(**choices):
            problem = {"batch": 32, "size": 224, "tokens": 197, "blocks": 12, "model": "tiny",
                       "attention": "tiling", "embed": "simple", "norm": "simple", "mlp": "simple",
                       "qkv": "split", "seed": 1, **choices}
            return {**NAIVE, "chapter": "12_vision_transformer", "problem": problem,
                    "kernels": [{**line("norm1", launch(3.0)), "launches": 12},
                                line("head", launch(4.0)), line("net")]}
        merged = gains.merge([self.write("a", net()), self.write("b", net(mlp="wmma", norm="rows")),
                              self.write("c", net(attention="naive", qkv="inside"))])
        [run] = merged["runs"]
        self.assertEqual((run["title"], gains.short(run)),
                         ("vision transformer", "tiny, batch 32, 224 pixels, 12 blocks"))
        self.assertEqual([step["name"] for step in run["steps"]],
                         ["tiling attention", "tiling attention, norm rows, mlp wmma",
                          "naive attention, qkv inside"])
        self.assertEqual([(step["predicted"]["us"], step["bound_us"]) for step in run["steps"]],
                         3 * [(40.0, 20.0)])

    def test_ways_over_sizes_are_a_table_of_their_own(self):
        lines = [line(f"{way} {tokens} x {width}{part}", counters)
                 for tokens, width in ((64, 128), (64, 256), (512, 128)) for way in ("apart", "inside")
                 for part, counters in ((": a", launch(tokens + len(way))), ("", None))]
        merged = gains.merge([self.write("a", {
            **NAIVE, "chapter": "12_x", "problem": {"batch": 1, "sizes": 12}, "kernels": lines})])
        text = gain_tables.block(merged, 12, 12, False)
        self.assertIn("fp32, batch 1; apart / inside, predicted µs:", text)
        self.assertIn("| tokens | width 128 | width 256 |\n", text)
        self.assertIn("| 64 | **69** / 70 | **69** / 70 |\n| 512 | **517** / 518 | - / - |\n", text)
        self.assertEqual(front_page.bought_by_prediction(merged), {})

    def test_limits_of_a_sampled_run_are_those_of_all_blocks(self):
        whole = launch(8.0, dram_us=5.0)
        self.assertEqual(gains.bound_of(whole), ("L1/shared", 4.0))
        blocks = {"blocks_of_sm": 6, "blocks_simulated": 2, "dram_us": 5.0}
        sampled = {**launch(8.0, **blocks), "sampled": True, "blocks": 600, "executed_blocks": 2}
        self.assertEqual(gains.bound_of(sampled), ("L1/shared", 12.0))  # 6/2 times as many
        sampled["limits"]["tensor"] = 0.05  # of all SMs: 600/2 times
        self.assertEqual(gains.bound_of(sampled), ("tensor", 15.0))
        sampled["limits"] = {"L1/shared": 0.1, "DRAM": 0.1}
        self.assertEqual(gains.bound_of(sampled), ("DRAM", 5.0))

    def test_a_run_without_predictions_is_refused(self):
        bare = copy.deepcopy(NAIVE)
        for kernel in bare["kernels"][:2]:
            del kernel["counters"]["predicted"]
        status, _, err = script("gains.py", self.path("out"), self.write("a", bare))
        self.assertEqual(status, 2)
        self.assertIn("attention: the run predicted no times", err)
        gpu = {**NAIVE, "device": {**DEVICE, "virtual": False}}
        self.assertIn("not of the virtual GPU", script("gains.py", self.path("out"),
                                                       self.write("a", gpu))[2])

    def check(self, change=lambda result: None, version="V13.0.88"):
        ptxas = []
        for name in ("V13.0.88", version):
            ptxas.append(self.path(name))
            with open(ptxas[-1], "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho release, {name}\n")
            os.chmod(ptxas[-1], 0o755)
        self.assertEqual(script("gains.py", "--ptxas", ptxas[0], self.path("out"),
                                self.write("a", NAIVE))[0], 0)
        later = copy.deepcopy(NAIVE)
        change(later)
        return script("gains.py", "--check", "--ptxas", ptxas[1], self.path("out"),
                      self.write("b", later))

    def test_two_percent_are_no_difference(self):
        def by(factor):
            def change(result):
                result["kernels"][0]["counters"]["predicted"]["us"] *= factor
            return change
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.check(by(1.01))[0], 0)
        status, _, err = self.check(by(1.2))
        self.assertEqual(status, 1)
        self.assertIn("01_naive_attention attention: predicted.us: 80.0 -> 92.0", err)

    def test_another_ptxas_is_said_and_not_compared(self):
        def change(result):
            result["kernels"][0]["counters"]["predicted"]["us"] *= 2
        status, out, _ = self.check(change, "V12.8.93")
        self.assertEqual(status, 0)
        self.assertIn("not compared: the reference is of ptxas V13.0.88, this run of V12.8.93", out)

    def test_steps_that_come_or_go_are_named(self):
        def change(result):
            result["chapter"] = "02_tiling"
            result["ratios"] = [{"after": "attention"}]
        status, _, err = self.check(change)
        self.assertEqual(status, 1)
        self.assertIn("02_tiling attention: new", err)
        self.assertIn("01_naive_attention attention: is in the file, was not run", err)


class Tables(Case):
    README = "top\n<!-- gains:begin {} -->\nold\n<!-- gains:end -->\nend\n"

    def setUp(self):
        super().setUp()
        os.makedirs(self.path("virtual_h200"))

    def refresh(self, of, wanted="7", *flags):
        with open(self.path("virtual_h200/gains.json"), "w", encoding="utf-8") as file:
            json.dump({"device": DEVICE, "ptxas": "V13.0.88", "runs": [{
                "title": "x", "problem": {"source": "photo.png"}, "steps": of}]}, file)
        with open(self.path("README.md"), "w", encoding="utf-8") as file:
            file.write(self.README.format(wanted))
        done = script("lessons/docs.py", *flags, "--results", self.folder, self.path("README.md"))
        with open(self.path("README.md"), encoding="utf-8") as file:
            return done[0], done[1] + done[2], file.read()

    def test_a_row_a_step_and_what_does_not_pay(self):
        status, _, text = self.refresh(steps(40.0, 10.0, 30.0, 9.9))
        self.assertEqual(status, 0)
        self.assertIn("| step | predicted ±25%, µs |", text)
        self.assertIn("| b | 10 | 4 times as fast | 1 (issue) | wait 60% |\n", text)
        self.assertIn("| c | 30 | 3 times as slow | 1 (issue) |", text)
        # d is faster than c, but no faster than b, the best so far.
        self.assertIn("What does not pay here: *c* is 3 times as slow as *b*; *d* is no faster than "
                      "*b*.", text)
        self.assertTrue(text.startswith("top\n") and text.endswith("<!-- gains:end -->\nend\n"))

    def test_a_limit_above_its_prediction_is_said(self):
        of = steps(40.0, 10.0)
        of[1]["bound_us"] = 12.0
        text = self.refresh(of)[2]
        self.assertIn("The limit of *b* (issue) is above the prediction: the simulator finds less "
                      "work", text)
        self.assertNotIn("above the prediction", self.refresh(steps(40.0, 10.0))[2])

    def test_no_prediction_has_its_reason(self):
        text = self.refresh(steps(40.0, None, 20.0))[2]
        self.assertIn("| b | - |  | 1 (issue) |  |\n", text)
        self.assertIn("| c | 20 |  |", text)  # nothing to compare with beside it
        self.assertIn("No predicted time of b: no ptxas", text)
        self.assertNotIn("does not pay", text)

    def test_a_chapter_stands_below_the_best_of_the_one_before(self):
        of = steps(40.0, 30.0, 35.0, 20.0)
        for step, chapter in zip(of, ("01_a", "02_b", "02_b", "03_c")):
            step["chapter"] = chapter
        self.assertEqual([step["name"] for step in gain_tables.chosen({"steps": of}, 3, 3)[0]],
                         ["d"])
        self.assertEqual(gain_tables.chosen({"steps": of}, 3, 3)[1]["name"], "b")
        self.assertIsNone(gain_tables.chosen({"steps": of}, 1, 3)[1])
        self.assertIn("| b | 30 |", self.refresh(of, "3")[2])

    def test_why_warps_wait(self):
        text = self.refresh(steps(40.0), "7 waits")[2]
        self.assertIn("| a | 50% | wait 60%: fixed latency of arithmetic |", text)

    def test_lines_of_code_are_those_of_all_that_a_step_includes(self):
        texts = problems.kernel_texts(13, "loads in flight")
        self.assertTrue(any("void load_rows(" in text for text in texts))  # by "./load_rows.cuh"
        self.assertEqual(len(texts), len(set(texts)))
        texts = problems.kernel_texts(3, "4 rows a warp")
        self.assertTrue(any("struct OnlineSoftmax" in text for text in texts))  # in chapter 2's parts/
        self.assertFalse(any("namespace tiling {" in text and "__global__" in text for text in texts))

    def test_rates_beside_lines_of_code(self):
        of = steps(40.0, 20.0, 10.0, None)
        for step, (chapter, name) in zip(of, (("04_wmma", "wmma"), ("11_mlp", "wmma"),
                                              ("11_mlp", "swizzle"), ("11_mlp", "no such step"))):
            step.update(chapter=chapter, name=name, flops=2e9)
        text = self.refresh(of, "4-11 lines")[2]
        self.assertIn("| step | TFLOP/s, predicted ±25% | lines of code | written in |\n", text)
        for us, step, written in ((40, of[0], "plain CUDA"), (20, of[1], "plain CUDA"),
                                  (10, of[2], "tile.cuh")):
            lines = problems.kernel_lines(int(step["chapter"][:2]), step["name"])
            self.assertGreater(lines, 50)
            self.assertIn(f"| {step['name']} | {2000 / us:.3g} | {lines} | {written} |\n", text)
        self.assertIn("| no such step | - | - | - |\n", text)
        self.assertEqual(self.refresh(of, "4-11 rows")[0], 2)

    def test_checked(self):
        self.assertEqual(self.refresh(steps(40.0), "7", "--check")[0], 1)
        text = self.refresh(steps(40.0))[2]
        self.assertEqual(script("lessons/docs.py", "--check", "--results", self.folder,
                                self.path("README.md"))[0], 0)
        self.assertEqual(self.refresh(steps(40.0))[2], text)

    def test_bad_input_is_named(self):
        status, out, _ = self.refresh(steps(40.0), "8")
        self.assertEqual(status, 2)
        self.assertIn("gains:begin 8: no such chapter in gains.json", out)
        self.assertEqual(self.refresh(steps(40.0), "seven")[0], 2)
        for content, words in (("{}", "not what gains.py writes"), ("[]", "no JSON object")):
            with open(self.path("virtual_h200/gains.json"), "w", encoding="utf-8") as file:
                file.write(content)
            status, _, err = script("lessons/docs.py", "--results", self.folder, self.path("README.md"))
            self.assertEqual(status, 2)
            self.assertIn(words, err)
