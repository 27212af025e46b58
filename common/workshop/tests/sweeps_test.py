"""Predicted times and memory over batch and size: the file, what differs from it, its pictures."""
import json
import sys
import unittest
import unittest.mock

from support import Case, contextlib, copy, io, script

import sweeps
from results import Refused

import component_shares
import labels
import memory_plan
import sweeps_embedding
import sweeps_net

try:
    import matplotlib
except ImportError:
    matplotlib = None

DEVICE = {"name": "NVIDIA H200", "virtual": True}
HEAD = {"nvcc": "13.0", "device": DEVICE}


def embedding(batch, side=224):
    """A result of chapter 9: the slow steps' times rise with the outputs."""
    outputs = batch * (side / 16) ** 2
    steps = (("slow", 100.0 * outputs, 0.5), ("1 stream", 50.0 * outputs, 0.5),
             ("4 streams", 50.0 * outputs + 1, 0.5), ("one product", 40.0 + outputs / 100, 1.0))
    return {"chapter": "09_patch_embedding", **HEAD,
            "problem": {"source": "cat.png", "batch": batch, "height": side, "width": side,
                        "channels": 192, "part_patches": 4, "part_channels": 16, "seed": 1},
            "kernels": [{"name": name, "predicted_us": 7.0, "predicted_error": 0.25,
                         "all_tokens_us": us, "all_tokens_share_run": share}
                        for name, us, share in steps]}


def net(batch, size, steps, us):
    lines = [{"name": "fc1", "launches": 12, "predicted_us": us / 2, "predicted_error": 0.25},
             {"name": "net", "predicted_us": us, "predicted_error": 0.25, "weights_bytes": 2.0 ** 23,
              "activations_bytes": 2.0 ** 20 * batch, "separate_bytes": 2.0 ** 24 * batch,
              "attention_bytes": 0.0}]
    return {"chapter": "12_vision_transformer", **HEAD,
            "problem": {"source": "cat.png", "batch": batch, "size": size, "model": "tiny",
                        "embed": steps, "norm": steps, "mlp": steps, "attention": "coalesced_k"},
            "kernels": lines}


ALL = [*(embedding(batch) for batch in (1, 32)), embedding(1, 512),
       *(net(batch, size, steps, (1000.0 + 10 * batch) * factor) for batch in (1, 32)
         for size in (224, 512) for steps, factor in (("simple", 3.0), ("rows", 1.0)))]


class Sweeps(Case):
    def results(self, results):
        paths = []
        for index, result in enumerate(results):
            paths.append(self.path(f"r{index}.json"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                json.dump(result, file)
        return paths

    def test_times_of_all_outputs_and_how_many_of_them_ran(self):
        runs = sweeps.merge(self.results([embedding(32), net(1, 224, "rows", 10.0)]))["runs"]
        self.assertEqual(runs[0]["lines"][0],
                         {"name": "slow", "us": 627200.0, "error": 0.25, "share_run": 0.5})
        self.assertNotIn("share_run", runs[0]["lines"][3])
        self.assertEqual(runs[1]["lines"][1]["activations_bytes"], 2.0 ** 20)
        self.assertNotIn("source", runs[0]["problem"])

    def test_what_cannot_be_kept_is_refused(self):
        nothing = embedding(1)
        nothing["kernels"][1]["all_tokens_us"] = None
        nothing["kernels"][1]["predicted_why"] = "no ptxas"
        on_gpu = {**embedding(1), "device": {**DEVICE, "virtual": False}}
        other = {**embedding(2), "nvcc": "12.8"}
        for wrong, words in ((nothing, "1 stream: no predicted time: no ptxas"),
                             (on_gpu, "not of the virtual GPU"), (other, "another device or compiler"),
                             ({"device": DEVICE}, "no 'chapter' in it")):
            with self.assertRaisesRegex(Refused, words):
                sweeps.merge(self.results([embedding(1), wrong]))
        with self.assertRaisesRegex(Refused, "slow is there twice"):
            sweeps.checked(self.results([embedding(1), embedding(1)]), None)

    def test_the_file_is_written_and_compared(self):
        def run(results, *flags):
            status, out, err = script("sweeps.py", *flags, self.folder, *self.results(results))
            return status, out + err
        self.assertEqual(run(ALL, "--check")[0], 1)
        self.assertEqual(run(ALL)[0], 0)
        self.assertEqual(run(ALL, "--check")[0], 0)
        near, far, less = (copy.deepcopy(ALL) for _ in range(3))
        near[0]["kernels"][3]["all_tokens_us"] *= 1.01
        self.assertEqual(run(near, "--check")[0], 0)
        far[0]["kernels"][3]["all_tokens_us"] *= 1.03
        status, out = run(far, "--check")
        self.assertEqual(status, 1)
        self.assertIn("(batch 1, height 224, width 224, channels 192, part_patches 4, "
                      "part_channels 16): one product: us: 41.96 ->", out)
        less[3]["kernels"][1]["activations_bytes"] /= 2
        self.assertIn("net: activations_bytes: 1048576.0 -> 524288.0", run(less, "--check")[1])
        status, out = run(ALL[:-1], "--check")
        self.assertEqual((status, out.count("is in the file, was not run")), (1, 2))

    def test_lines_that_agree_are_one(self):
        runs = sweeps.runs_of(sweeps.merge(self.results(ALL)), 9)
        found = sweeps_embedding.series(runs, "batch", {"height": 224})
        self.assertEqual([names for names, *_ in found],
                         [["slow"], ["1 stream", "4 streams"], ["one product"]])
        self.assertEqual([extended for *_, extended in found], [True, True, False])
        self.assertEqual(found[0][1], [(1, 19600.0), (32, 627200.0)])
        self.assertEqual(sweeps_embedding.joined(["1 stream", "4 streams"]), "1, 4 streams")
        self.assertEqual(sweeps_embedding.joined(["a", "b c"]), "a, b c")
        with self.assertRaisesRegex(Refused, "two sizes of batch"):
            sweeps_embedding.series(runs, "batch", {"height": 512})

    def test_titles_have_the_numbers_of_the_file(self):
        found = sweeps.merge(self.results(ALL))
        (left, right), words = sweeps_embedding.panels_of(found)
        self.assertIn("2.4 times as long, each other step 32 times", left[1])  # 102.72 / 41.96
        self.assertIn("One photo of 512 pixels", right[1])
        self.assertIn("64 outputs ran", words)
        lines = sweeps_net.lines_of(sweeps.runs_of(found, 12))
        self.assertEqual(len(lines), 4)
        rates, memory = sweeps_net.titles(lines, [224, 512])
        self.assertIn("32 images at a time: 24 times as many", rates)  # 32 * 1010 / 1320
        self.assertIn("16 times as much memory", memory)

    def test_labels_keep_their_order_and_their_distance(self):
        self.assertEqual(labels.spread([0, 100, 50], 10), [0, 100, 50])
        self.assertEqual(labels.spread([0, 4], 10), [-3, 7])
        for heights in ([5, 5, 5, 5], [0, 9, 10, 30], [30, 0, 1, 12, 13], []):
            places = labels.spread(heights, 10)
            order = sorted(range(len(heights)), key=lambda i: heights[i])
            for low, high in zip(order, order[1:]):
                self.assertGreaterEqual(places[high] - places[low], 10 - 1e-6)

    def test_shares_of_components_are_of_their_net(self):
        runs = [run for run in sweeps.merge(self.results(ALL))["runs"] if "size" in run["problem"]]
        with self.assertRaisesRegex(Refused, "do not add up to the net's"):  # fc1 is half of it
            component_shares.bars(runs)
        for run in runs:
            fc1, whole = run["lines"]
            tiny = {"name": "norm", "us": 0.005 * whole["us"]}
            fc1["us"] = 0.6 * whole["us"]
            run["lines"] = [fc1, {"name": "fc2", "us": 0.395 * whole["us"]}, tiny, whole]
        found = component_shares.bars(runs)
        self.assertEqual([(choice[0], batch) for choice, batch, _ in found],
                         [("simple", 1), ("simple", 32), ("rows", 1), ("rows", 32)])
        self.assertEqual([(name, round(share, 4)) for name, share in
                          component_shares.pieces(found[0][2])],
                         [("fc1", 0.6), ("fc2", 0.395), ("other", 0.005)])
        self.assertIn("fc1 takes 60 % of the slowest net at batch 1; in the fastest",
                      component_shares.title_of(found))
        with self.assertRaisesRegex(Refused, "two choices"):
            component_shares.title_of(found[:2])

    def test_a_plan_in_which_two_arrays_share_a_place_at_a_time_is_refused(self):
        def of(name, offset, size, first, last):
            return {"name": name, "offset": offset, "bytes": size, "first": first, "last": last}
        plan = {"stages": ["embedding", "blocks.0.qkv", "blocks.0.split", "head"],
                "buffers": [of("image", 0, 10, 0, 1), of("blocks.0.qkv", 10, 20, 1, 2),
                            of("blocks.0.q", 0, 10, 2, 3)]}
        self.assertIsNone(memory_plan.overlap(plan))
        self.assertEqual(memory_plan.alive(plan), [10, 30, 30, 10])
        self.assertEqual(memory_plan.shown_stages(plan), 3)
        plan["buffers"][2]["first"] = 1
        self.assertEqual(memory_plan.overlap(plan), ("blocks.0.q", "image"))

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn(self):
        def drawn(module, *arguments):
            said = io.StringIO()
            with unittest.mock.patch.object(sys, "argv", [module.__name__, *arguments]), \
                    contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                return module.main(), said.getvalue()
        found = sweeps.merge(self.results(ALL))
        with contextlib.redirect_stdout(io.StringIO()):
            sweeps.write(self.folder, found)
            sweeps.write(self.path("none"), {**found, "runs": []})
        for module in (sweeps_embedding, sweeps_net):
            with self.subTest(module.__name__):
                picture = self.path("a.png")
                self.assertEqual(drawn(module, picture, self.path("sweeps.json")),
                                 (0, f"{picture}: drawn\n"))
                with open(picture, "rb") as file:
                    self.assertEqual(file.read(4), b"\x89PNG")
                status, said = drawn(module, picture, self.path("none/sweeps.json"))
                self.assertEqual(status, 2)
                self.assertIn("has no run of chapter", said)
