"""The picture of a training step's bytes: which launch belongs to which operation, and to which way."""
import json
import os
import subprocess
import sys
import unittest

from support import ROOT, Case

import step_bytes


def launch(kernel, load, store=0, atomic=0, copied=0):
    sizes = {"load": load, "store": store, "atomic": atomic}
    return {"kernel": kernel,
            "global": {access: {"bytes_asked": size} for access, size in sizes.items()},
            "copy_engine": {"load": {"bytes": copied}, "store": {"bytes": 0}, "atomic": {"bytes": 0}}}


def bytes_of(forward, backward, update, launches):
    return {"forward": forward, "backward": backward, "update": update, "launches": launches}


STEP = [launch("cvt::norm_forward_kernel<1>", 100, 50), launch("conv_projection::fused_kernel<float>", 10, 15),
        launch("cvt::attention_forward_kernel<32>", 7, 3, copied=5),
        launch("cvt::cross_entropy_kernel", 4, 4), launch("cvt::mean_kernel", 1, 1),
        launch("conv_projection::gather_dx_kernel<float>", 40, 20, 3),
        launch("cvt::product_kernel<cvt::Tile, cvt::Across, cvt::Matrix>", 30, 10),
        launch("cvt::finish_weights_kernel", 10, 2),
        launch("cvt::product_kernel<cvt::Tile, cvt::Across, cvt::Gathered>", 60, 20),
        launch("cvt::finish_weights_kernel", 20, 4),
        launch("cvt::norm_backward_kernel<1>", 200, 50), launch("cvt::adamw_kernel", 16, 12)]


class StepBytes(Case):
    def test_launches_are_told_apart_by_operation_and_by_the_loss(self):
        found = step_bytes.first_step(STEP)
        self.assertEqual(found["LayerNorm"], bytes_of(150, 250, 0, 2))
        self.assertEqual(found["convolutional projection"],
                         bytes_of(25, 63, 0, 2))
        self.assertEqual(found["attention"], bytes_of(15, 0, 0, 1))
        self.assertEqual(found["loss"], bytes_of(10, 0, 0, 2))
        self.assertEqual(found["linear layers"], bytes_of(0, 52, 0, 2))
        self.assertEqual(found["embedding"], bytes_of(0, 104, 0, 2))
        self.assertEqual(found["AdamW"], bytes_of(0, 0, 28, 1))

    def test_only_the_first_step_counts(self):
        self.assertEqual(step_bytes.first_step(STEP + STEP), step_bytes.first_step(STEP))

    def test_what_is_no_step_is_refused(self):
        for launches, words in ((STEP[:3], "neither loss nor optimizer"), (STEP[:-1], "no optimizer"),
                                ([launch("other::kernel", 1)], "other::kernel: of no operation")):
            with self.assertRaisesRegex(step_bytes.Refused, words):
                step_bytes.first_step(launches)

    def test_usage_and_input(self):
        script = os.path.join(ROOT, "common", "workshop", "figures", "step_bytes.py")
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "usage: step_bytes.py PICTURE.png PROFILE.json\n"))

    def test_the_lessons_table(self):
        mebi = 2**20
        rows = step_bytes.table({"small": bytes_of(mebi, 2 * mebi, 0, 3), "AdamW": bytes_of(0, 0, 5 * mebi, 1)})
        self.assertEqual(rows[2:], ["| AdamW | 1 |  |  | 5.0 |  |", "| small | 3 | 1.0 | 2.0 |  | 2.0 |",
                                    "| all | 4 | 1.0 | 2.0 | 5.0 | 2.0 |"])
        profile, lesson = self.path("profile.json"), self.path("README.md")
        with open(profile, "w", encoding="utf-8") as file:
            json.dump(STEP, file)

        def run(text, *flags):
            with open(lesson, "w", encoding="utf-8") as file:
                file.write(text)
            script = os.path.join(ROOT, "common", "workshop", "figures", "step_bytes.py")
            done = subprocess.run([sys.executable, script, "--table", *flags, lesson, profile],
                                  capture_output=True, text=True, check=False)
            with open(lesson, encoding="utf-8") as file:
                return done.returncode, done.stdout + done.stderr, file.read()
        empty = "before\n<!-- bytes:begin -->\n<!-- bytes:end -->\nbehind\n"
        status, said, unchanged = run(empty, "--check")
        self.assertEqual((status, unchanged), (1, empty))
        self.assertIn("bytes of a step are stale", said)
        status, said, written = run(empty)
        self.assertEqual(status, 0, said)
        self.assertIn("<!-- bytes:begin -->\n\n| operation |", written)
        self.assertIn("| AdamW | 1 |", written)
        self.assertEqual(run(written, "--check")[0], 0)
        status, said, _ = run("no lines\n")
        self.assertEqual(status, 2)
        self.assertIn("no lines '<!-- bytes:begin -->'", said)

    def test_it_is_drawn(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("no matplotlib")
        with open(self.path("profile.json"), "w", encoding="utf-8") as file:
            json.dump(STEP, file)
        step_bytes.picture(self.path("picture.png"), self.path("profile.json"))
        self.assertGreater(os.path.getsize(self.path("picture.png")), 5000)


if __name__ == "__main__":
    unittest.main()
