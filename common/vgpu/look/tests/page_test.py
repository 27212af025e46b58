"""What the page does with an object that is made by hand, so that every number is known."""
import unittest

from support import PageTest, two_kernels


class Summary(PageTest):
    def test_a_row_for_each_launch_says_time_with_error_limit_and_occupancy(self):
        page = self.open(two_kernels())
        rows = page.texts("table.launches tbody tr")
        self.assertEqual(len(rows), 2)
        for part in ("strided", "8 µs ±25 %", "2 µs", "DRAM", "100 %, by warps"):
            self.assertIn(part, rows[0])
        self.assertIn("Times are predictions, each with its error; limits are lower bounds.",
                      page.text("#panel-launches"))

    def test_a_click_on_a_row_chooses_that_launch(self):
        page = self.open(two_kernels())
        self.assertIn("strided", page.text("#panel-limits h2"))
        page.click("table.launches tr[data-launch='1'] td")
        self.assertIn("dense", page.text("#panel-limits h2"))
        self.assertEqual(page.js("document.getElementById('launch').value"), "1")

    def test_bars_are_as_long_as_limits_are_shares_of_the_predicted_time(self):
        page = self.open(two_kernels())
        widths = page.js("""Object.fromEntries([...document.querySelectorAll('#panel-limits .bar')].map(bar => [
            bar.querySelector('.bar-label').textContent, bar.querySelector('.filled').style.width]))""")
        self.assertEqual(widths, {"predicted": "100%", "DRAM": "25%", "issue": "10%"})
        self.assertIn("L2: not modelled", page.text("#panel-limits"))

    def test_stalls_are_sorted_and_defined(self):
        page = self.open(two_kernels())
        labels = page.texts("#panel-stalls .bar-label .term")
        self.assertEqual(labels[0], "long_scoreboard")
        page.hover("#panel-stalls .bar-label .term")
        self.assertEqual(page.text("#tip"), "The warp waits for global or local memory.")

    def test_the_roofline_has_a_point_for_each_launch_and_its_roofs(self):
        page = self.open(two_kernels())
        self.assertEqual(page.js("document.querySelectorAll('#panel-roofline .point').length"), 2)
        self.assertEqual([text.split()[0] for text in page.texts("#panel-roofline .roof-name")],
                         ["DRAM", "fp32", "tensor", "wgmma"])
        # 1.2e6 operations in 8 us and 12288 bytes
        self.assertIn("launch 1: 97.7 operations a byte, 150 GFLOP/s",
                      page.js("document.querySelector('#panel-roofline svg').getAttribute('aria-label')"))

    def test_the_timeline_is_stepped_through_with_keys(self):
        page = self.open(two_kernels())
        page.js("document.querySelector('#timeline-chart canvas').focus()")
        page.key("ArrowRight")
        self.assertEqual(page.text("#timeline-chart .status"), "cudaMalloc: 10 µs, from 0 µs to 10 µs")
        page.key("ArrowDown")
        self.assertIn("strided: 8 µs", page.text("#timeline-chart .status"))
        self.assertEqual(page.js("byTimeline.chart.rows.length"), 2, "rows of the SM are left out")
        self.assertIn("3 events are left out.", page.text("#panel-timeline"))

    def test_a_hot_line_leads_to_the_source(self):
        page = self.open(two_kernels())
        self.assertIn("strided.cuh:5", page.texts("table.hot tbody tr")[0])
        page.click("table.hot tbody button")
        self.assertEqual(page.js("[state.tab, state.row]"), ["source", 4])
        self.assertIn("strided.cuh:5", page.text("#line-status"))


class Panes(PageTest):
    def setUp(self):
        self.open(two_kernels(), address="tab=source&launch=1")

    def heat(self, row):
        return self.browser.text(f"#{row} .heat")

    def test_the_heat_switch_changes_the_cells(self):
        said = {}
        for mode in ("time", "instructions", "sectors", "conflicts", "stalls"):
            self.browser.click(f"#heat-choice [data-value={mode}]")
            said[mode] = (self.heat("source-4"), self.heat("ptx-1"), self.heat("ptx-2"))
        self.assertEqual(said, {
            "time": ("90 %", "80 %", "10 %"), "instructions": ("24", "12", "12"),
            "sectors": ("8.0×", "8.0×", ""), "conflicts": ("372", "", "372"),
            "stalls": ("91 % memory", "82 % memory", "9.2 % shared")})

    def test_bars_grow_with_the_value(self):
        share = "Number(document.querySelector('#%s .heat').style.getPropertyValue('--share'))"
        self.assertEqual(self.browser.js(share % "ptx-1"), 1)
        self.assertEqual(self.browser.js(share % "ptx-2"), 0.125)

    def lit(self):
        return self.browser.js("[...document.querySelectorAll('.row.lit')].map(row => row.id)")

    def test_a_source_line_lights_its_ptx_and_machine_code(self):
        self.browser.click("#source-4 code")
        self.assertEqual(self.lit(), ["source-4", "ptx-1", "ptx-2", "sass-1", "sass-2"])
        self.browser.click("#sass-3 code")
        self.assertEqual(self.lit(), ["source-5", "ptx-3", "sass-3"])

    def test_the_line_under_the_pointer_marks_what_belongs_to_it(self):
        near = "[...document.querySelectorAll('.row.near')].map(row => row.id)"
        self.browser.hover("#source-4 code")
        self.assertEqual(self.browser.js(near), ["ptx-1", "ptx-2", "sass-1", "sass-2"])
        self.browser.hover("#sass-3 code")
        self.assertEqual(self.browser.js(near), ["source-5", "ptx-3"])
        self.browser.hover("#line-status")
        self.assertEqual(self.browser.js(near), [])

    def test_keys_go_through_lines_and_panes(self):
        self.browser.click("#source-3 code")
        self.browser.js("document.getElementById('pane-source').focus()")
        self.browser.key("ArrowDown")
        self.assertEqual(self.lit()[0], "source-4")
        self.browser.key("ArrowRight")
        self.assertEqual(self.browser.js("[document.activeElement.id, state.pane, state.row]"), ["pane-ptx", "ptx", 1])
        self.browser.key("n")
        self.assertEqual(self.browser.js("state.row"), 2)
        self.browser.key("Home")
        self.assertEqual(self.browser.js("state.row"), 0)
        self.browser.key("h")
        self.assertEqual(self.browser.js("state.heat"), "instructions")

    def test_text_of_the_source_is_no_markup(self):
        self.assertIsNone(self.browser.js("document.getElementById('injected')"))
        self.assertIn("</script><b id=\"injected\">", self.browser.text("#source-6"))


class Access(PageTest):
    WORDS = "#view-source .access-words"

    def setUp(self):
        self.open(two_kernels(), address="tab=source&launch=1")

    def test_a_click_on_a_line_shows_its_sectors(self):
        self.assertIn("Choose a line", self.browser.text(self.WORDS))
        self.browser.click("#ptx-1 code")
        self.assertIn("32 of 32 lanes load 4 bytes each of in: 32 sectors moved, 4 needed (8×)",
                      self.browser.text(self.WORDS))
        self.assertEqual(self.browser.js("document.querySelectorAll('#view-source .sector').length"), 32)
        self.browser.js("selectLaunch(1)")
        self.browser.click("#ptx-1 code")
        self.assertIn("4 sectors moved, 4 needed (1×)", self.browser.text(self.WORDS))
        self.assertEqual(self.browser.js("document.querySelectorAll('#view-source .sector').length"), 4)

    def test_sliders_go_through_executions_and_warps(self):
        self.browser.click("#ptx-1 code")
        self.browser.choose("#view-source .executionSlider", 2)
        self.assertIn("4 sectors moved", self.browser.text(self.WORDS))
        self.browser.choose("#view-source .executionSlider", 0)
        self.browser.choose("#view-source .warpSlider", 1)
        self.assertEqual(self.browser.js("[state.warp, state.execution]"), [1, 0])
        self.assertIn("in + 4,096 bytes", self.browser.text("#view-source .access-lane"))

    def test_the_lanes_are_reached_by_keys_and_say_their_address(self):
        self.browser.click("#ptx-1 code")
        self.browser.js("document.getElementById('pane-ptx').focus()")
        self.browser.key("Enter")
        self.browser.key("ArrowRight")
        self.assertEqual(
            self.browser.text("#view-source .access-lane"),
            "Lane 1 · thread (1, 0, 0) · in + 128 bytes (0x80) · sector 4 · 4 bytes")
        self.browser.key("End")
        self.assertIn("Lane 31", self.browser.text("#view-source .access-lane"))

    def test_a_lane_under_the_pointer_is_marked_with_its_sector(self):
        self.browser.click("#ptx-1 code")
        self.browser.hover("#view-source .lane[data-lane='9'] rect")
        self.assertIn("Lane 9", self.browser.text("#view-source .access-lane"))
        self.assertEqual(self.browser.js("document.querySelectorAll('#view-source .sector.here').length"), 1)

    def test_shared_memory_is_shown_by_banks(self):
        self.browser.click("#ptx-2 code")
        self.assertIn("32 wavefronts, 1 needed, so 31 are bank conflicts. The fullest bank serves 32 words.",
                      self.browser.text(self.WORDS))
        self.assertEqual(self.browser.js("document.querySelectorAll('#view-source .bank').length"), 32)
        self.assertEqual(self.browser.js("document.querySelectorAll('#view-source .word.more').length"), 31)
        self.browser.choose("#view-source .warpSlider", 1)
        self.assertIn("16 of 32 lanes store", self.browser.text(self.WORDS))
        self.browser.js("document.querySelector('#view-source .lanes-picture').focus()")
        self.browser.key("End")
        self.assertIn("not active in this access", self.browser.text("#view-source .access-lane"))

    def test_neighbouring_words_fill_all_banks(self):
        self.browser.js("selectLaunch(1)")
        self.browser.click("#ptx-2 code")
        self.assertIn("1 wavefront, 1 needed, no bank conflict. The fullest bank serves 1 word.", self.browser.text(self.WORDS))
        self.assertEqual(self.browser.texts("#view-source .in-word"), [str(lane) for lane in range(32)])

    def test_a_line_with_two_accesses_lets_choose(self):
        self.browser.click("#source-4 code")
        self.assertEqual(len(self.browser.texts("#view-source .access-choice option")), 2)
        self.browser.choose("#view-source .access-choice", 1)
        self.assertIn("shared memory", self.browser.text(self.WORDS))

    def test_a_line_without_access_says_so(self):
        self.browser.click("#source-5 code")
        self.assertIn("No access of memory was recorded for this line.", self.browser.text(self.WORDS))


class Block(PageTest):
    STATUS = "#block-chart .status"

    def setUp(self):
        self.open(two_kernels(), address="tab=block&launch=1")

    def test_steps_move_the_access_and_the_lines(self):
        self.browser.js("document.querySelector('#block-chart canvas').focus()")
        self.browser.key("ArrowRight")
        self.assertIn("Warp 0 · computes · clock 0 to 10 (10) · strided.cuh:4", self.browser.text(self.STATUS))
        self.browser.key("ArrowRight")
        self.assertIn("32 sectors moved", self.browser.text("#view-block .access-words"))
        self.assertIn("ld.global.f32", self.browser.text("#view-block .listing:nth-child(2) .here"))
        self.assertEqual(self.browser.js("[state.warp, state.execution, state.ptx]"), [0, 0, 1])
        self.browser.key("ArrowDown")
        self.assertIn("Warp 1", self.browser.text(self.STATUS))
        self.browser.key("2")
        self.assertEqual(self.browser.js("[state.tab, state.pane, state.row]"), ["source", "ptx", 1])

    def test_the_next_access_is_the_next_execution(self):
        for expected in ([0, 0, 1], [0, 0, 2], [0, 1, 1]):
            self.browser.click("#steps button:nth-child(4)")
            self.assertEqual(self.browser.js("[state.warp, state.execution, state.ptx]"), expected)

    def test_a_click_on_the_chart_chooses_a_step(self):
        # The first warp waits from clock 12 to 400 of 900.
        x, y = self.browser.js("""(() => {
            const chart = blockView.chart, box = chart.canvas.getBoundingClientRect();
            return [box.x + chart.x(200, box.width), box.y + chart.axis + chart.rowHeight / 2];
        })()""")
        self.browser.click_at(x, y)
        self.assertIn("Warp 0 · waits (long_scoreboard) · clock 12 to 400", self.browser.text(self.STATUS))

    def test_zoom_shows_less_time_and_the_whole_again(self):
        span = "Math.round(blockView.chart.to - blockView.chart.from)"
        self.browser.js("document.querySelector('#block-chart canvas').focus()")
        self.browser.key("+")
        self.assertEqual(self.browser.js(span), 450)
        self.browser.key("0")
        self.assertEqual(self.browser.js(span), 900)

    def test_phases_are_named_with_their_shares(self):
        legend = " ".join(self.browser.texts("#view-block .legend li"))
        for words in ("waits at a barrier 49 %", "computes 1.1 %", "stores 0.2 %"):
            self.assertIn(words, legend)

    def test_packed_segments_are_the_same(self):
        data = two_kernels()
        warps = data["launches"][0]["warps"]
        whole = [self.browser.js(f"blockView.chart.rows[{w}].segments") for w in (0, 1)]
        kinds, reasons = ["load", "store", "compute", "wait", "barrier"], ["selected", "long_scoreboard", "wait", "barrier"]
        packed = [[number for b, e, kind, ptx, reason in warp
                   for number in (e - b, kinds.index(kind), ptx, reasons.index(reason))] for warp in warps.pop("warps")]
        warps.update(packed=packed, begin=[0, 0], kinds=kinds, reasons=reasons)
        self.open(data, address="tab=block&launch=1")
        self.assertEqual([self.browser.js(f"blockView.chart.rows[{w}].segments") for w in (0, 1)], whole)


class Compare(PageTest):
    def setUp(self):
        self.open(two_kernels(), address="tab=compare&launch=1&other=2")

    def test_lines_are_aligned_and_changes_marked(self):
        rows = self.browser.js("""[...document.querySelectorAll('.diff-row.differs')].map(
            row => [...row.querySelectorAll('code')].map(code => code.textContent.trim()))""")
        self.assertEqual(rows, [
            ["// Copies every 32nd element.", "// Copies neighbours."],
            ["__global__ void strided(const float* in, float* out) {",
             "__global__ void dense(const float* in, float* out) {"],
            ["const int i = threadIdx.x * 32;", "const int i = threadIdx.x;"]])
        self.assertIn("3 rows differ of 8", self.browser.text("#panel-lines"))

    def test_counters_that_differ_come_first_by_ratio_and_a_switch_shows_all(self):
        rows = self.browser.texts("table.counters tbody tr")
        self.assertEqual(rows[0], "global / load / sectors384480.125×")
        self.assertNotIn("registers", " ".join(rows))
        self.browser.click("#compare-all")
        everything = " ".join(self.browser.texts("table.counters tbody tr"))
        self.assertIn("registers1616same", everything)

    def test_the_sentence_says_which_is_faster(self):
        self.assertIn("B is 4 times as fast as A, predicted: 8 µs ±25 % and 2 µs ±25 %.", self.browser.text(".lead"))
        self.browser.click(".compare-choices button")
        self.assertIn("B is 4 times as slow as A", self.browser.text(".lead"))

    def test_ptx_is_compared_too(self):
        self.browser.click("#compare-what [data-value=ptx]")
        self.assertIn("0 rows differ of 6", self.browser.text("#panel-lines"))

    def test_long_equal_stretches_fold(self):
        data = two_kernels()
        for source in data["sources"]:
            source["lines"] = ["// the same"] * 40 + source["lines"]
        for one in data["launches"]:
            for line in one["ptx"]:
                line["l"] += 40 if line["l"] else 0
        self.open(data, address="tab=compare&launch=1&other=2")
        self.assertEqual(self.browser.text(".fold"), "37 equal lines")
        self.browser.click(".fold")
        self.assertEqual(self.browser.js("document.querySelectorAll('.diff-row').length"), 48)

    def test_alignment_finds_the_longest_common_lines(self):
        pairs = self.browser.js("align([...'abcabba'], [...'cbabac'])")
        self.assertEqual(sum(i >= 0 and j >= 0 for i, j in pairs), 4)
        self.assertEqual([i for i, _ in pairs if i >= 0], list(range(7)))
        self.assertEqual([j for _, j in pairs if j >= 0], list(range(6)))
        self.assertIsNone(self.browser.js("align(Array(9000).fill(1), Array(9000).fill(2))"))


if __name__ == "__main__":
    unittest.main()
