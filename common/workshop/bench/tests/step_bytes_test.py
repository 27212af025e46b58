"""The picture of a training step's bytes: which launch belongs to which operation, and to which way."""
import json
import os
import subprocess
import sys
import unittest

from support import ROOT, Case

sys.path.insert(0, os.path.join(ROOT, "common", "workshop", "figures"))
import step_bytes  # noqa: E402


def launch(kernel, load, store=0, atomic=0, copied=0):
    sizes = {"load": load, "store": store, "atomic": atomic}
    return {"kernel": kernel,
            "global": {access: {"bytes_asked": size} for access, size in sizes.items()},
            "copy_engine": {"load": {"bytes": copied}, "store": {"bytes": 0}, "atomic": {"bytes": 0}}}


STEP = [launch("cvt::norm_forward_kernel<1>", 100, 50), launch("conv_projection::fused_kernel<float>", 10, 15),
        launch("cvt::attention_forward_kernel<32>", 7, 3, copied=5),
        launch("cvt::cross_entropy_kernel", 4, 4), launch("cvt::mean_kernel", 1, 1),
        launch("conv_projection::spread_kernel<float>", 40, 20, 3),
        launch("cvt::product_kernel<cvt::Tile, cvt::Across, cvt::Matrix>", 30, 10),
        launch("cvt::finish_weights_kernel", 10, 2),
        launch("cvt::product_kernel<cvt::Tile, cvt::Across, cvt::Gathered>", 60, 20),
        launch("cvt::finish_weights_kernel", 20, 4),
        launch("cvt::norm_backward_kernel<1>", 200, 50), launch("cvt::adamw_kernel", 16, 12)]


class StepBytes(Case):
    def test_launches_are_told_apart_by_operation_and_by_the_loss(self):
        found = step_bytes.first_step(STEP)
        self.assertEqual(found["LayerNorm"], {"forward": 150, "backward": 250, "update": 0})
        self.assertEqual(found["convolutional projection"],
                         {"forward": 25, "backward": 63, "update": 0})
        self.assertEqual(found["attention"], {"forward": 15, "backward": 0, "update": 0})
        self.assertEqual(found["loss"], {"forward": 10, "backward": 0, "update": 0})
        self.assertEqual(found["linear layers"], {"forward": 0, "backward": 52, "update": 0})
        self.assertEqual(found["embedding"], {"forward": 0, "backward": 104, "update": 0})
        self.assertEqual(found["AdamW"], {"forward": 0, "backward": 0, "update": 28})

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
