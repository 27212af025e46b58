"""Objects that lack things, keys for everybody, small screens, paper: what must not break."""
import unittest

from support import PageTest, two_kernels

TABS = ("summary", "source", "block", "compare")


def without(path, value=None):
    """two_kernels() in which the field at a path of the first launch has another value."""
    data = two_kernels()
    where = data["launches"][0]
    for name in path[:-1]:
        where = where[name]
    where[path[-1]] = value
    return data


class Edges(PageTest):
    def says(self, data, tab, *sentences):
        """Every view opens, and that one says these sentences."""
        self.open(data)
        for name in TABS:
            self.browser.click(f"#tab-{name}")
            self.assertGreater(len(self.browser.text(f"#view-{name}").strip()), 10, name)
        self.browser.click(f"#tab-{tab}")
        for sentence in sentences:
            self.assertIn(sentence, self.browser.text(f"#view-{tab}"))
        self.assertEqual(self.browser.errors, [])

    def test_no_launch(self):
        data = two_kernels()
        data["launches"] = []
        for tab in TABS:
            self.says(data, tab, "The program launched no kernel")

    def test_nothing_at_all(self):
        self.says({}, "summary", "The program launched no kernel", "There is no timeline in this page.")

    def test_damaged_data(self):
        self.says("{\"version\": 1, ", "summary", "The data of this page are damaged")

    def test_another_version(self):
        self.says({"version": 2}, "source", "The data have version 2, and this page reads version 1.")

    def test_a_launch_of_nothing_but_a_name(self):
        self.says({"version": 1, "launches": [{"kernel": "k"}]}, "summary", "unknown",
                  "There are no limits of this launch.", "No source line is known for this launch")

    def test_a_launch_that_failed(self):
        data = two_kernels()
        data["launches"][0].update(report={"kernel": "strided", "failed": True, "grid": [2, 1, 1]},
                                   sass=None, accesses=None, warps=None)
        self.says(data, "block", "There is no block over time: the launch failed.")

    def test_no_machine_code(self):
        data = without(["sass"])
        data["launches"][0]["sass_why"] = "no ptxas on this machine"
        self.says(data, "source", "No machine code: no ptxas on this machine.")

    def test_no_prediction(self):
        data = without(["report", "predicted"], {"us": None, "why": "ptxas refuses the PTX"})
        data["launches"][0]["warps"] = None
        self.says(data, "summary", "There is no predicted time: ptxas refuses the PTX.",
                  "Reasons are unknown: ptxas refuses the PTX.", "Not drawn: 1 (no predicted time).")
        self.assertIn("unknown", self.browser.texts("table.launches tbody tr")[0])
        self.says(data, "block", "There is no block over time: ptxas refuses the PTX.")

    def test_no_accesses(self):
        self.says(without(["accesses"]), "source", "No access of memory was recorded for this launch.")

    def test_no_sources(self):
        data = two_kernels()
        data["sources"] = []
        self.says(data, "source", "The source is not known")
        self.says(data, "compare", "The source of one of the two is not known")

    def test_a_source_that_is_left_out(self):
        data = two_kernels()
        data["sources"][0] = {"path": "cuda_fp16.hpp", "lines": None, "why": "a header of the CUDA toolkit"}
        self.says(data, "source", "The source is not known")

    def test_no_timeline(self):
        data = two_kernels()
        data["timeline"] = None
        self.says(data, "summary", "There is no timeline in this page.")

    def test_one_launch(self):
        data = two_kernels()
        data["launches"].pop()
        self.says(data, "compare", "The program has one launch only")

    def test_findings_are_text(self):
        data = without(["findings"], ["kernel.cuh:42: race <img src=x onerror=alert(1)>"])
        data["findings"] = ["kernel.cuh:42: race <img src=x onerror=alert(1)>", "stream: leak"]
        data["launches"][0]["kernel"] = "<img src=x onerror=alert(1)>"
        self.says(data, "summary", "kernel.cuh:42: race <img src=x onerror=alert(1)>", "stream: leak")
        self.assertEqual(self.browser.js("document.querySelectorAll('img').length"), 0)

    def test_copies_and_operands_of_matrix_units(self):
        data = two_kernels()
        accesses = data["launches"][0]["accesses"]
        accesses["instructions"] = [{"p": 1, "space": "global", "kind": "bulk", "bytes": 0, "executed": 1},
                                    {"p": 2, "space": "shared", "kind": "operand", "bytes": 16, "executed": 1},
                                    {"p": 0, "space": "global", "kind": "async", "bytes": 16, "executed": 1}]
        spread = {"first": 0, "step": 16}
        accesses["list"] = [
            {"i": 0, "w": 1, "k": 0, "m": 1, "a": "K", "rows": [[0, 128], [512, 128]], "row_count": 64, "bytes": 8192, "s": 256},
            {"i": 1, "w": 0, "k": 0, "m": 0xffffffff, "o": spread, "v": 4, "d": 4},
            {"i": 2, "w": 0, "k": 0, "m": 0xff, "a": "K", "o": spread, "s": 4, "to": spread, "v": 1, "d": 1}]
        self.says(data, "source")
        for row, words in ((1, "One thread asks the copy engine for 8.19 kB of K in 64 rows: 256 sectors moved."),
                           (2, "The matrix unit reads 32 pieces of 16 bytes of shared memory: 4 wavefronts, 4 needed, no bank conflict"),
                           (0, "8 of 32 lanes copy 16 bytes each of K: 4 sectors moved, 4 needed (1×); 100 % of the bytes moved are used. Into shared memory: 1 wavefront, 1 needed.")):
            self.browser.click(f"#ptx-{row} code")
            self.assertIn(words, self.browser.text("#view-source .access-words"))


class Everybody(PageTest):
    def test_keys_choose_views_and_launches_and_show_help(self):
        page = self.open(two_kernels())
        for key, tab in zip("4321", reversed(TABS)):
            page.key(key)
            self.assertEqual(page.js("[...document.querySelectorAll('[role=tabpanel]')].filter(v => !v.hidden).map(v => v.id)"),
                             ["view-" + tab])
        page.key("]")
        self.assertEqual(page.js("state.launch"), 1)
        page.key("[")
        self.assertEqual(page.js("state.launch"), 0)
        page.key("?")
        self.assertTrue(page.js("document.getElementById('help').open"))
        self.assertIn("next heat column", page.text("#help"))
        self.assertIn("32 bytes, the smallest piece that global memory moves", page.text("#help"))
        page.key("Escape")
        self.assertFalse(page.js("document.getElementById('help').open"))

    def test_tab_reaches_everything_and_focus_is_seen(self):
        page = self.open(two_kernels(), address="tab=source&launch=1&pane=ptx&row=2")
        seen = []
        for _ in range(14):
            page.key("Tab")
            name, outline = page.js("""(() => {
                const e = document.activeElement, style = getComputedStyle(e);
                return [e.id || e.className.baseVal || e.className || e.tagName, style.outlineStyle + style.outlineWidth];
            })()""")
            seen.append(name)
            if name != "BODY":
                self.assertNotIn("none", outline, name)
        for name in ("tab-source", "launch", "help-button", "pane-source", "pane-ptx", "pane-sass", "executionSlider", "warpSlider", "lanes-picture"):
            self.assertIn(name, seen)

    def test_arrow_keys_go_through_tabs(self):
        page = self.open(two_kernels())
        page.js("document.getElementById('tab-summary').focus()")
        page.key("ArrowRight")
        self.assertEqual(page.js("[state.tab, document.activeElement.id]"), ["source", "tab-source"])

    def test_the_address_brings_back_what_was_shown(self):
        page = self.open(two_kernels(), address="tab=source&launch=2&heat=conflicts")
        page.click("#ptx-2 code")
        address = page.js("location.hash.slice(1)")
        self.open(two_kernels(), address=address)
        self.assertEqual(page.js("[state.tab, state.launch, state.heat, state.pane, state.row]"), ["source", 1, "conflicts", "ptx", 2])

    def test_no_sideways_scrolling_at_390_pixels(self):
        for dark in (False, True):
            page = self.open(two_kernels(), width=390, height=844, dark=dark)
            for tab in TABS:
                page.click(f"#tab-{tab}")
                self.assertEqual(page.js("document.documentElement.scrollWidth"), 390, tab)

    def test_panes_are_tabs_at_390_pixels(self):
        page = self.open(two_kernels(), width=390, height=844, address="tab=source&launch=1")
        shown = "[...document.querySelectorAll('.pane')].filter(p => p.offsetWidth).map(p => p.dataset.pane)"
        self.assertEqual(page.js(shown), ["source"])
        page.click("#pane-choice [data-value=sass]")
        self.assertEqual(page.js(shown), ["sass"])
        page.size(1280, 900)
        self.assertEqual(page.js(shown), ["source", "ptx", "sass"])

    def test_text_has_contrast_in_light_and_dark(self):
        ratio = """(() => {
            const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
            const light = (hex) => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
                .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const of = (a, b) => { const [x, y] = [light(value(a)), light(value(b))].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
            return [['--ink', '--paper'], ['--dim', '--paper'], ['--dim', '--ground'], ['--ink', '--heat'], ['--accent', '--paper'], ['--ink', '--accent-soft']]
                .map(([a, b]) => [a + ' on ' + b, of(a, b)]);
        })()"""
        for dark in (False, True):
            page = self.open(two_kernels(), dark=dark)
            for pair, value in page.js(ratio):
                self.assertGreaterEqual(value, 4.5, f"{pair}, dark {dark}")

    def test_paper_shows_the_summary_whatever_was_open(self):
        page = self.open(two_kernels(), address="tab=source&launch=1")
        page.call("Emulation.setEmulatedMedia", {"media": "print"})
        page.js("window.dispatchEvent(new Event('beforeprint'))")
        seen = page.js("['view-summary', 'view-source', 'tabs', 'panel-hot'].map(id => document.getElementById(id).offsetHeight > 0)")
        self.assertEqual(seen, [True, False, False, True])
        self.assertTrue(page.pdf().startswith(b"%PDF"))
        page.call("Emulation.setEmulatedMedia", {"media": ""})


if __name__ == "__main__":
    unittest.main()
