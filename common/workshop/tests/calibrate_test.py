"""`make calibrate` on the virtual GPU: what it predicts gives back the constants it predicts with."""
import json
import os
import subprocess

from support import *  # noqa: F403
import unittest

PROGRAMS = os.environ.get("BENCH_PROGRAMS")
CONSTANTS = ["l1_latency", "l2_latency", "dram_latency", "remote_shared_latency",
             "remote_bytes_per_clock", "shared_latency", "matrix_latency", "tensor_chain",
             "tensor_interval", "special_latency", "special", "special_latency", "special",
             "barrier_latency", "grid_barrier_us", "cooperative_us", "launch_us", "graph_node_us",
             "bulk_latency", "bulk_interval", "l2_bytes_per_clock", "dram_gb_s"]
OF_HOPPER = {"remote_shared_latency", "remote_bytes_per_clock", "bulk_latency", "bulk_interval"}


def calibrate(device, *flags):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("VGPU_") or name == "VGPU_PTXAS"}
    done = subprocess.run([os.path.join(ROOT, PROGRAMS, "calibrate"), *flags], text=True,
                          capture_output=True, timeout=300, check=False,
                          env={**environment, "VGPU_DEVICE": device})
    return done.returncode, done.stdout, done.stderr


@unittest.skipUnless(PROGRAMS, "BENCH_PROGRAMS: of the virtual GPU")
class Calibrate(Case):
    def rows(self, device, *flags):
        code, _, error = calibrate(device, "--json", self.path("calibration.json"), *flags)
        with open(self.path("calibration.json"), encoding="utf-8") as file:
            self.report = json.load(file)
        return code, self.report["constants"], error

    def test_constants_are_given_back(self):
        for device in ("h200", "a100", "t4", "rtx4090", "rtx5090"):
            with self.subTest(device=device):
                code, rows, error = self.rows(device)
                self.assertEqual((code, error), (0, ""))
                self.assertEqual([row["constant"] for row in rows], CONSTANTS)
                lacking = set()
                for row in rows:
                    with self.subTest(constant=row["constant"]):
                        self.assertTrue(row["source"])
                        self.assertEqual(row["tolerance"], 0.02)
                        self.assertEqual(row["slack"] > 0, row["constant"] == "grid_barrier_us")
                        if row["lacking"]:
                            lacking.add(row["constant"])
                            self.assertIsNone(row["measured"])
                        elif row["constant"] == "tensor_chain":
                            self.assertTrue(15 < row["measured"] < 40, row["measured"])
                        else:
                            self.assertAlmostEqual(row["measured"], row["model"],
                                                   delta=0.02 * row["model"] + row["slack"])
                expected = set() if device in ("h200", "rtx5090") else set(OF_HOPPER)
                self.assertEqual(lacking, expected)
                self.assertIn("l0_instructions", self.report["recalled"])
                self.assertIn("sleep_clocks", self.report["guessed"])
                self.assertFalse({*self.report["recalled"], *self.report["guessed"]} &
                                 {*CONSTANTS, "dram_share"})

    def test_what_a_device_lacks_is_named(self):
        code, rows, _ = self.rows("a100", "--only", "bulk")
        self.assertEqual((code, {row["lacking"] for row in rows}),
                         (0, {"not on this device: bulk copies (from 9.0 on)"}))

    def test_another_constant_is_found(self):
        code, rows, _ = self.rows("h200", "--only", "l2_latency", "--constant", "l2_latency=270")
        self.assertEqual((code, rows[0]["model"], rows[0]["source"]), (1, 270, "--constant"))
        code, output, _ = calibrate("h200", "--only", "l2_latency", "--constant", "l2_latency=270")
        self.assertEqual(code, 1)
        self.assertIn("1.044  off", output)
        self.assertIn("1 of 1 are not what the model says", output)

    def test_all_that_a_gpu_executes_runs(self):
        # The virtual GPU passes for a real one: times and clocks mean nothing, but all is there.
        os.environ["LAB_HIDE_VGPU"] = "1"
        self.addCleanup(os.environ.pop, "LAB_HIDE_VGPU")
        code, rows, error = self.rows("t4")
        self.assertEqual((code, error, self.report["virtual"]), (0, "", False))
        for row in rows:
            self.assertEqual(row["measured"] is None, row["constant"] in OF_HOPPER, row)
            self.assertEqual(bool(row["lacking"]), row["constant"] in OF_HOPPER, row)

    def test_bad_input(self):
        for flags, words in ((("--constant", "l2_latency"), "must be NAME=VALUE"),
                             (("--constant", "l9=3"), "--constant 'l9=3'"),
                             (("--constant", "l2_latency=-3"), "must be a number above 0"),
                             (("--constant", "l2_latency=3x"), "must be a number above 0"),
                             (("--only", "l9"), "no constant that is measured begins so"),
                             (("--json", self.path("no/where.json")), "--json")):
            with self.subTest(flags=flags):
                code, _, error = calibrate("h200", *flags)
                self.assertEqual(code, 2, error)
                self.assertIn(words, error)
