"""The page that a program writes: chapter 3, whose kernels load K with and without coalescing."""
import html
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

# The browser is driven as in the page's own tests, which know no chapter.
PAGE_TESTS = pathlib.Path(__file__).resolve().parents[2] / "vgpu" / "look" / "tests"
sys.path.append(str(PAGE_TESTS))
_spec = importlib.util.spec_from_file_location("page_support", PAGE_TESTS / "support.py")
page_support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page_support)
ROOT = page_support.ROOT

PROGRAMS = os.environ.get("BENCH_PROGRAMS")


@unittest.skipUnless(PROGRAMS, "BENCH_PROGRAMS: of the virtual GPU")
class Run(page_support.PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.file = pathlib.Path(cls.folder.name) / "chapter3.html"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VGPU_") or k == "VGPU_PTXAS"}
        cls.done = subprocess.run(
            [os.path.join(ROOT, PROGRAMS, "chapter3"), "--tokens", "64", "--look", str(cls.file)],
            cwd=ROOT, env=environment, text=True, capture_output=True, check=False)

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.open(self.file, address="tab=summary&launch=1")

    def choose(self, launch, text):
        """Chooses the line of a launch's source that has the text in it, and clicks on it."""
        self.browser.js(f"selectLaunch({launch}); showTab('source')")
        row = self.browser.js(f"LOOK.sources[state.file].lines.findIndex(line => line.includes({json.dumps(text)}))")
        self.assertGreaterEqual(row, 0, text)
        self.browser.click(f"#source-{row} code")
        return f"#source-{row}"

    def test_it_is_one_small_file_with_the_three_kernels(self):
        self.assertLess(self.file.stat().st_size, 5_000_000)
        self.assertEqual([text.split("::")[0].lstrip("0123456789") for text in self.browser.texts("table.launches tbody tr")],
                         ["tiling", "coalesced_loads", "coalescing"])
        self.assertIn("chapter3", self.browser.text("#program"))
        self.assertNotIn("unknown", self.browser.text("table.launches"))

    def test_tiling_moves_a_sector_for_each_lane_and_coalescing_only_what_it_needs(self):
        line = self.choose(0, "row_global[d]")
        self.browser.click("#heat-choice [data-value=sectors]")
        self.assertEqual(self.browser.text(line + " .heat"), "16.0×")
        self.assertIn("32 of 32 lanes load 2 bytes each of K: 32 sectors moved, 2 needed (16×)",
                      self.browser.text("#view-source .access-words"))
        line = self.choose(2, "reinterpret_cast<const uint4*>")
        self.assertEqual(self.browser.text(line + " .heat"), "1.0×")
        self.assertIn("32 of 32 lanes load 16 bytes each of Q: 16 sectors moved, 16 needed (1×)",
                      self.browser.text("#view-source .access-words"))

    def test_the_sliders_follow_the_rows_that_a_warp_loads(self):
        self.choose(0, "row_global[d]")
        self.assertIn("K + 0 bytes", self.browser.text("#view-source .access-lane"))
        self.browser.choose("#view-source .executionSlider", 1)
        self.assertRegex(self.browser.text("#view-source .access-lane"), r"[KV] \+ \d+ bytes")
        self.assertGreaterEqual(self.browser.js("state.execution"), 1)

    def test_a_line_is_linked_with_its_machine_code(self):
        self.choose(2, "reinterpret_cast<const uint4*>")
        code = self.browser.texts("#pane-sass .row.lit code")
        self.assertTrue(any("LDG" in text for text in code), code)

    def test_heats_of_the_ptx_add_up_to_the_report(self):
        sums = self.browser.js("""LOOK.launches.map((launch, i) => [model(i).total.executed,
            launch.report.warp_instructions, model(i).total.sectors,
            launch.report.global.load.sectors + launch.report.global.store.sectors])""")
        for executed, instructions, sectors, moved in sums:
            self.assertEqual((executed, sectors), (instructions, moved))

    def test_a_block_is_stepped_through_from_access_to_access(self):
        self.browser.js("selectLaunch(2); showTab('block')")
        clocks, ends = self.browser.js("[LOOK.launches[2].warps.clocks, blockView.chart.rows.map(r => r.segments.at(-1).end)]")
        self.assertEqual(max(ends), clocks)
        self.assertTrue(self.browser.js("blockView.chart.rows.every(r => r.segments.every((s, i, all) => s.end > s.begin && (!i || s.begin >= all[i - 1].end)))"))
        kinds = self.browser.js("[...new Set(blockView.chart.rows.flatMap(r => r.segments.map(s => s.kind)))].sort()")
        self.assertEqual(kinds, ["barrier", "compute", "load", "store", "wait"])
        reasons = self.browser.js("[...new Set(blockView.chart.rows.flatMap(r => r.segments.map(s => s.reason)))]")
        self.assertNotIn("", reasons)
        self.browser.click("#steps button:nth-child(4)")
        self.assertIn("Warp 0 · loads", self.browser.text("#block-chart .status"))
        self.assertIn("16 sectors moved, 16 needed", self.browser.text("#view-block .access-words"))

    def test_two_steps_are_compared(self):
        self.browser.js("selectLaunch(0); state.other = 2; showTab('compare')")
        self.assertRegex(self.browser.text(".lead"), r"B is [\d.]+ times as fast as A, predicted")
        rows = self.browser.texts("table.counters tbody tr")
        self.assertTrue(any(row.startswith("allocations / K / load / sectors") for row in rows), rows[:9])
        changed = self.browser.texts(".diff-row.differs code")
        self.assertIn("namespace tiling {", changed)
        self.assertIn("namespace coalescing {", changed)

    def test_it_works_in_a_frame_of_a_notebook(self):
        frame = pathlib.Path(self.folder.name) / "frame.html"
        frame.write_text(f'<iframe width="1000" height="800" srcdoc="{html.escape(self.file.read_text())}"></iframe>')
        self.browser.open(frame)
        inside = "document.querySelector('iframe').contentDocument"
        self.browser.js(f"{inside}.getElementById('tab-source').click()")
        self.assertEqual(self.browser.js(f"{inside}.querySelectorAll('[role=tabpanel]:not([hidden])')[0].id"), "view-source")

    def test_it_fits_a_small_screen(self):
        self.browser.size(390, 844)
        for tab in ("summary", "source", "block", "compare"):
            self.browser.click(f"#tab-{tab}")
            self.assertEqual(self.browser.js("document.documentElement.scrollWidth"), 390, tab)


if __name__ == "__main__":
    unittest.main()
