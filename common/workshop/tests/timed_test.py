"""Predicted times beside Nsight Compute's, without a GPU: tables as ncu prints them, made up."""
import json
import os
import subprocess
import sys
import unittest

from support import BENCH, Case, copy

import made_up
import ncu
import timed
import validate
from results import Refused

STALLS = {"selected": 0.2, "not_selected": 0.1, "long_scoreboard": 0.5, "barrier": 0.15,
          "no_instructions": 0.03, "dispatch": 0.02}
PREDICTED = {"us": 100.0, "error": 0.25, "launch_us": 2.5, "sm_us": 97.5, "clocks": 97.5 * 1980,
             "issue_share": 0.5, "machine_instructions": 1e6,
             "pipes": {"fma": {"instructions": 4e5, "share": 0.4},
                       "lsu": {"instructions": 1e5, "share": 0.25}}, "stalls": STALLS}
LAUNCH = {"kernel": "tiling<64>", "mangled": "_Z6tilingv", "grid": [26, 1, 1],
          "block": [128, 1, 1], "predicted": PREDICTED}
TIME, COUNT = timed.BOUND


class Tables(unittest.TestCase):
    """One launch, beside a table of it."""

    def rows(self, change=(), drop=(), slower=1.1, launch=LAUNCH):
        metrics = {**made_up.metrics_of(LAUNCH, slower), **dict(change)}
        for name in drop:
            del metrics[name]
        found, alone = timed.compare([launch], ncu.launches(
            made_up.text([(LAUNCH, metrics)], times=2), timed.METRICS), validate.paired)
        self.assertEqual(alone, [])
        return {row["quantity"]: row for row in found}

    def beyond(self, *args, **more):
        return [name for name, row in self.rows(*args, **more).items() if not row["within"]]

    def test_all_quantities(self):
        rows = self.rows()
        self.assertEqual(rows[TIME], {
            "kernel": "tiling<64>", "quantity": TIME, "predicted": 100.0, "gpu": 110.0,
            "allowed": 0.25 * 110.0, "within": True, "information": False})
        self.assertEqual(rows[COUNT]["gpu"], 1.01e6)
        self.assertAlmostEqual(rows["clock, MHz"]["gpu"], 1980)
        self.assertAlmostEqual(rows["issue slots"]["gpu"], 0.5 / 1.1)
        self.assertEqual(rows["pipe fma, instructions"]["gpu"], 4e5)
        self.assertAlmostEqual(rows["pipe lsu"]["gpu"], 0.25 / 1.1)
        self.assertAlmostEqual(rows["stall long_scoreboard"]["gpu"], 0.55 / 1.05)
        self.assertAlmostEqual(rows["stall no_instructions"]["gpu"], 0.03 / 1.05)
        self.assertAlmostEqual(rows["stalls, share that differs"]["gpu"], 0.55 / 1.05 - 0.5)
        self.assertEqual({name for name, row in rows.items() if not row["information"]},
                         {TIME, COUNT})
        self.assertNotIn("pipe fp64", rows)  # neither has any
        self.assertNotIn("stall sleeping", rows)

    def test_a_time_beyond_the_stated_error_is(self):
        self.assertEqual(self.beyond(slower=1.33), [])
        self.assertEqual(self.beyond(slower=1.34), [TIME])
        self.assertEqual(self.beyond(slower=0.81), [])
        self.assertEqual(self.beyond(slower=0.79), [TIME])
        narrow = {**LAUNCH, "predicted": {**PREDICTED, "error": 0.05}}
        self.assertEqual(self.beyond(launch=narrow), [TIME])

    def test_machine_instructions_have_a_bound_and_shares_none(self):
        name = "smsp__inst_executed.sum"
        self.assertEqual(self.beyond([(name, ("inst", 1_080_000))]), [])
        self.assertEqual(self.beyond([(name, ("inst", 1_090_000))]), [COUNT])
        self.assertEqual(self.beyond([(name, ("inst", 920_000))]), [COUNT])
        issue = "smsp__issue_active.avg.pct_of_peak_sustained_active"
        self.assertEqual(self.beyond([(issue, ("%", 99.0))]), [])

    def test_units_of_times(self):
        for unit, value in (("ns", 110_000), ("usecond", 110.0), ("us", 110.0), ("msecond", 0.11),
                            ("ms", 0.11), ("second", 0.00011)):
            row = self.rows([("gpu__time_duration.sum", (unit, value))])[TIME]
            self.assertAlmostEqual(row["gpu"], 110.0)
        row = self.rows([("gpu__time_duration.sum", ("fortnight", 1))])[TIME]
        self.assertEqual((row["gpu"], row["within"]), (None, False))
        self.assertRegex(row["why"], r"`gpu__time_duration.sum` is in 'fortnight', known are 'nsec")
        row = self.rows([("smsp__issue_active.avg.pct_of_peak_sustained_active", ("pct", 50))])
        self.assertIn("is in 'pct'", row["issue slots"]["why"])
        self.assertTrue(row["issue slots"]["within"])

    def test_a_missing_time_counts_as_beyond_and_a_missing_share_does_not(self):
        for value in ("n/a", "nan", "-nan(ind)", "inf", ""):
            rows = self.rows([("gpu__time_duration.sum", ("nsecond", value))])
            self.assertEqual((rows[TIME]["gpu"], rows[TIME]["within"]), (None, False))
            self.assertIn("ncu did not deliver `gpu__time_duration.sum`, nor", rows[TIME]["why"])
        self.assertEqual(self.beyond(drop=["smsp__inst_executed.sum"]), [COUNT])
        rows = self.rows(drop=["smsp__issue_active.avg.pct_of_peak_sustained_active"])
        self.assertNotIn("issue slots", rows)

    def test_names_of_other_chips_and_versions(self):
        total = "smsp__inst_executed.sum"
        rows = self.rows([("sm__inst_executed.sum", ("inst", 1_000_001))], [total])
        self.assertEqual(rows[COUNT]["gpu"], 1_000_001)
        active = "smsp__issue_active.avg"
        rows = self.rows([(f"{active}.per_cycle_active", ("inst/cycle", 0.48))],
                         [f"{active}.pct_of_peak_sustained_active"])
        self.assertAlmostEqual(rows["issue slots"]["gpu"], 0.48)
        fma = "sm__inst_executed_pipe_fma"
        rows = self.rows([(f"{fma}heavy.sum", ("inst", 300_000)),
                          (f"{fma}lite.sum", ("inst", 90_000))], [f"{fma}.sum"])
        self.assertEqual(rows["pipe fma, instructions"]["gpu"], 390_000)
        rows = self.rows([("gpc__cycles_elapsed.avg.per_second", ("Ghz", 1.755))],
                         ["smsp__cycles_elapsed.avg.per_second"])
        self.assertAlmostEqual(rows["clock, MHz"]["gpu"], 1755)

    def test_reasons_under_other_names(self):
        first = [names[0] for (_, form), names in timed.STALL_METRICS.items()
                 if form == timed.FORMS[0] and names[0] in made_up.metrics_of(LAUNCH)]
        samples = {"smsp__pcsamp_warps_issue_stalled_" + name: ("", count) for name, count in (
            ("selected", 100), ("long_scoreboard", 700), ("no_instructions", 100),
            ("dispatch_stall", 60), ("gmma", 40))}
        rows = self.rows(samples.items(), first)
        for reason, share in (("long_scoreboard", 0.7), ("no_instructions", 0.1),
                              ("dispatch", 0.06), ("gmma", 0.04), ("barrier", 0.0)):
            self.assertAlmostEqual(rows[f"stall {reason}"]["gpu"], share)
        rows = self.rows(drop=first)
        self.assertIn("delivered no reasons", rows["stalls"]["why"])
        self.assertTrue(rows["stalls"]["within"])

    def test_no_prediction_is_said_and_breaks_no_bound(self):
        why = {**LAUNCH, "predicted": {"us": None, "why": "no ptxas"}}
        rows = self.rows(launch=why)
        self.assertEqual(list(rows), [TIME])
        self.assertEqual((rows[TIME]["within"], rows[TIME]["gpu"]), (True, 110.0))
        self.assertIn("no prediction: no ptxas", "\n".join(timed.lines(rows.values())))

    def test_what_people_read(self):
        rows = self.rows(slower=1.5).values()
        text = "\n".join(timed.lines(rows))
        self.assertIn(f"| tiling<64> | {TIME} | 100 | 150 | -33.3% | beyond |", text)
        self.assertIn(f"| tiling<64> | {COUNT} | 1,000,000 | 1,010,000 | -1.0% |  |", text)
        self.assertIn("| tiling<64> | issue slots | 50% | 33% | +17 points | information |", text)
        self.assertIn("| tiling<64> | stall long_scoreboard | 50% | 52% | -2 points | "
                      "information |", text)
        self.assertEqual(timed.summary(list(rows)), "Predicted times of 1 launches: mean error "
                         "33%, worst 33% (tiling<64>), 0 within the stated error. Of the warps' "
                         "time 2% is told under another reason, on the average.")
        self.assertEqual(timed.summary([]), "")

    def test_the_profiler_is_asked_for_all_of_them(self):
        command = ncu.command("log", ["./chapter3"], timed.METRICS)
        pattern = command[command.index("--metrics") + 1].removeprefix("regex:")
        for metric in timed.METRICS:
            self.assertRegex(metric, pattern)
        self.assertNotRegex("gpu__time_duration.max", pattern)


class Whole(Case):
    """validate.py of what was recorded."""

    def record(self, launches=(LAUNCH,), table=None, timed_chapters=(3,)):
        os.makedirs(self.path("record"), exist_ok=True)
        files = {"gpu.json": json.dumps({"name": "NVIDIA H200", "driver": "580.1", "chapters": [3],
                                         **({"timed": timed_chapters} if timed_chapters else {})}),
                 "chapter3.time.json": json.dumps(launches),
                 "chapter3.time.csv": table or made_up.text(
                     [(LAUNCH, made_up.metrics_of(LAUNCH))])}
        counted = {**LAUNCH, "registers": 61}
        files["chapter3.json"] = json.dumps([counted])
        files["chapter3.csv"] = made_up.text(
            [(LAUNCH, {"launch__registers_per_thread": ("register/thread", 61)})])
        for name, text in files.items():
            with open(self.path("record/" + name), "w", encoding="utf-8") as file:
                file.write(text)
        header = json.dumps({"out": {"dtype": "F32", "shape": [1],
                                     "data_offsets": [0, 4]}}).encode()
        for side in ("cuda", "vgpu"):
            with open(self.path(f"record/chapter3.{side}.safetensors"), "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")

    def validate(self, *flags):
        done = subprocess.run(
            [sys.executable, os.path.join(BENCH, "validate.py"), "--record", self.path("record"),
             "--json", self.path("{gpu}.json"), *flags], text=True, capture_output=True,
            timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    def data(self):
        with open(self.path("nvidia_h200.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_both_sides_are_in_the_file(self):
        self.record()
        status, out = self.validate()
        self.assertEqual(status, 0, out)
        self.assertIn("Predicted times of 1 launches: mean error 5%", out)
        self.assertIn("4 comparisons, 0 beyond", out)
        data = self.data()
        self.assertEqual((data["comparisons"], data["beyond"]), (4, 0))
        [chapter] = data["chapters"]
        self.assertEqual(chapter["counters"], [{"kernel": "tiling<64>", "counter": "registers",
                                                "virtual": 61, "gpu": 61.0, "within": True}])
        rows = {row["quantity"]: row for row in chapter["times"]["rows"]}
        self.assertEqual((rows[TIME]["predicted"], rows[TIME]["gpu"]), (100.0, 105.0))
        self.assertIn("--batch 32", chapter["times"]["flags"])

    def test_a_time_beyond_its_error_fails(self):
        self.record(table=made_up.text([(LAUNCH, made_up.metrics_of(LAUNCH, 2.0))]))
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn(f"| tiling<64> | {TIME} | 100 | 200 | -50.0% | beyond |", out)
        self.assertEqual(self.data()["beyond"], 1)
        self.assertEqual(self.validate("--counters")[0], 0)  # they alone

    def test_what_was_to_be_timed_and_is_not_there_fails(self):
        self.record()
        os.remove(self.path("record/chapter3.time.csv"))
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("**Not compared**: nothing recorded", out)
        # A record from before there were times is compared without them.
        self.record(timed_chapters=())
        status, out = self.validate()
        self.assertEqual(status, 0)
        self.assertNotIn("Predicted and measured", out)

    def test_without_any_prediction_nothing_was_compared(self):
        self.record([{**LAUNCH, "predicted": {"us": None, "why": "no ptxas here"}}])
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("no launch has a predicted time: no prediction: no ptxas here", out)

    def test_a_launch_of_one_side_alone(self):
        other = copy.deepcopy(LAUNCH)
        other["grid"] = [27, 1, 1]
        self.record([LAUNCH, other])
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("| tiling<64> (grid 27x1x1, block 128x1x1) | launches | 1 | 0 | +1 "
                      "| beyond |", out)

    def test_a_table_that_is_none_is_said(self):
        self.record(table="==ERROR== The GPU was taken away\n")
        status, out = self.validate()
        self.assertEqual(status, 1)
        self.assertIn("**Not compared**: ncu printed no table: ==ERROR== The GPU was taken away",
                      out)
        with self.assertRaises(Refused):
            ncu.launches("", timed.METRICS)


if __name__ == "__main__":
    unittest.main()
