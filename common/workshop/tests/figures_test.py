"""The pictures of results: what of a file they show, their colours, and that they can be drawn.
And which files a lesson's quotes come from."""
import json
import os
import re
import unittest

from support import ROOT, Case, contextlib, copy, io

import code_quotes
import counter_tables
import formulas
import labels
import ladder
import measured
import memories
import palette
import results
from results import Refused

try:
    import matplotlib
except ImportError:
    matplotlib = None

DEVICE = {"name": "NVIDIA H200", "dram_bytes_per_s": 4e12, "fp32_flop_per_s": 60e12,
          "tensor_flop_per_s": 800e12}


def kernel(name, us, **more):
    return {"name": name, "bytes": 1000.0, "flops": 8e6, **more, "median_us": us,
            "modelled_limit_us": us}


def counted(name, us, sectors, dram, **more):
    return kernel(name, us, dram_bytes=dram, **more,
                  **{"global": {"load": {"sectors": sectors}, "store": {"requests": 1}}})


NAIVE = [counted("scores", 3.0, 30, 500), counted("softmax", 1.0, 10, 400),
         kernel("attention", 4.0, kernel_lines=100, scratch_bytes=600.0)]
TILING = [*NAIVE[:2], kernel("attention", 4.0), counted("tiling", 2.0, 7, 300, kernel_lines=50)]
SHARED = [counted("simple", 8.0, 9, 100, kernel_lines=40),
          counted("shared", 4.0, 5, 200, kernel_lines=80)]


def predicted(us, **stalls):
    return {"predicted": {"us": us, "error": 0.25, "issue_share": 0.5,
                          "stalls": stalls or {"selected": 0.25, "long_scoreboard": 0.75}}}


GAINS = {"device": DEVICE, "runs": [
    {"title": "attention", "problem": {"batch": 32, "tokens": 577}, "steps": [
        {"chapter": "01_naive", "name": "attention", "bound_us": 10.0, "bound": "issue",
         **predicted(40.0)},
        {"chapter": "02_tiling", "name": "tiling", "bound_us": 4.0, "bound": "issue",
         **predicted(20.0, selected=0.5, wait=0.4, sleeping=0.1)}]},
    {"title": "other", "problem": {"preset": "deep"}, "steps": [
        {"chapter": "07_deformable", "name": "simple", "bound_us": 4.0, "bound": "issue",
         "predicted": {"why": "no ptxas"}},
        {"chapter": "07_deformable", "name": "shared", "bound_us": 2.0, "bound": "issue",
         **predicted(9.0)}]}]}


class Figures(Case):
    def tearDown(self):
        if matplotlib:
            palette.pyplot().close("all")
        super().tearDown()

    def write(self, number, name, kernels, virtual=True, **problem):
        runs = [{"problem": problem, "kernels": kernels}]
        if "tokens" in problem:
            runs.append({"problem": {"tokens": 17}, "kernels": []})
        with open(self.path(f"chapter{number}.json"), "w", encoding="utf-8") as file:
            json.dump({"chapter": name, "device": {**DEVICE, "virtual": virtual}, "runs": runs},
                      file)

    def write_all(self, virtual=True):
        self.write(1, "01_naive_attention", NAIVE, virtual, tokens=197)
        self.write(2, "02_tiling", TILING, virtual, tokens=197)
        self.write(7, "07_deformable", SHARED, virtual, queries=9)

    def test_steps_are_the_chapters_own_and_totals_are_sums(self):
        self.write_all()
        chapters = measured.load(self.folder)
        steps = {step.name: step for chapter in chapters for step in chapter.steps}
        self.assertEqual(list(steps), ["attention", "tiling", "simple", "shared"])
        naive = steps["attention"]
        self.assertEqual((naive.sectors, naive.dram_bytes, naive.memory_bytes, naive.lines),
                         (40, 900, 1600, 100))
        self.assertEqual((steps["tiling"].sectors, steps["tiling"].dram_bytes), (7, 300))
        self.assertFalse(naive.measured)
        groups = measured.ladders(chapters)
        self.assertEqual([[step.name for step in of] for _, of in groups],
                         [["attention", "tiling"], ["simple", "shared"]])
        self.assertIn("tokens 197", groups[0][0])

    def test_a_limit_that_leaves_something_out_is_not_compared(self):
        remote = {"distributed_shared": {"load": {"requests": 9, "bytes": 900}}}
        cluster = {"kernel_lines": 60, **remote}
        for limits, there in (({}, False), ({"distributed shared memory": 4.0}, True)):
            self.write(7, "07_deformable", [
                *SHARED, counted("cluster", 5.0, 5, 200, limits=limits, **cluster)], queries=9)
            names = [step.name for step in measured.load(self.folder)[0].steps]
            self.assertEqual(names, ["simple", "shared"] + ["cluster"] * there)
        # A time leaves out nothing.
        self.write(7, "07_deformable", [counted("cluster", 5.0, 5, 200, **cluster)], False,
                   queries=9)
        self.assertEqual(len(measured.load(self.folder)[0].steps), 1)

    def test_bars_side_by_side_are_of_one_problem(self):
        self.write_all()
        with open(self.path("chapter2.json"), encoding="utf-8") as file:
            content = json.load(file)
        larger = [{**of, "modelled_limit_us": 99.0} for of in content["runs"][0]["kernels"]]
        content["runs"].append({"problem": {"tokens": 1025}, "kernels": larger})
        with open(self.path("chapter2.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
        chapters = measured.load(self.folder)
        self.assertEqual([chapter.problem for chapter in chapters[:2]], ["tokens 197"] * 2)
        self.assertEqual(chapters[1].steps[0].us, 2.0)

    def test_a_gpu_has_times_and_is_drawn_full(self):
        self.write_all(virtual=False)
        step = measured.load(self.folder)[1].steps[0]
        self.assertTrue(step.measured)
        self.assertEqual(measured.device_of(measured.load(self.folder)), "NVIDIA H200")

    def test_peers_stand_beside_a_gpus_steps(self):
        self.write_all(virtual=False)
        with open(self.path("chapter2.json"), encoding="utf-8") as file:
            content = json.load(file)
        content["runs"][0]["peers"] = [{"name": "cudnn", "median_us": 1.0},
                                       {"name": "flash", "lacking": "no backend"}]
        with open(self.path("chapter2.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
        chapters = measured.load(self.folder)
        self.assertEqual([(peer.name, peer.us) for peer in chapters[1].peers],
                         [("PyTorch cudnn", 1.0)])
        if matplotlib:
            fig = measured.draw_speedup(palette.plot(), chapters,
                                        measured.climbed(self.folder, chapters))
            names = [label.get_text() for label in fig.axes[0].get_yticklabels()]
            self.assertEqual(names, ["1  attention", "2  tiling", "PyTorch cudnn"])

    def test_beside_peers_times_are_those_of_graphs_where_there_are(self):
        replayed = [SHARED[0], {**SHARED[1], "graph_us": 3.0}]
        self.write(7, "07_deformable", replayed, virtual=False, queries=9)
        with open(self.path("chapter7.json"), encoding="utf-8") as file:
            content = json.load(file)
        content["runs"][0]["peers"] = [{"name": "eager", "median_us": 60.0, "graph_us": 6.0},
                                       {"name": "slow", "median_us": 9000.0}]
        with open(self.path("chapter7.json"), "w", encoding="utf-8") as file:
            json.dump(content, file)
        chapter = measured.load(self.folder)[0]
        self.assertEqual([step.us for step in chapter.steps], [8.0, 4.0])
        title, steps = measured.beside_peers("a\nb", chapter.steps, chapter.peers)
        self.assertEqual(title, "a\nb, in CUDA graphs")
        self.assertEqual([step.us for step in steps], [8.0, 3.0, 6.0, 9000.0])
        self.assertEqual(measured.beside_peers("a\nb", chapter.steps, []), ("a\nb", chapter.steps))

    def test_peers_of_a_step_alone_stand_beside_all_steps(self):
        self.write(7, "07_deformable", SHARED, virtual=False, queries=9)
        with open(self.path("chapter7.json"), encoding="utf-8") as file:
            content = json.load(file)
        alone = {"problem": {"queries": 9}, "kernels": SHARED[1:], "peers": [{"name": "eager", "median_us": 60.0}]}
        other = {**alone, "problem": {"queries": 8}}

        def shown(*more):
            with open(self.path("chapter7.json"), "w", encoding="utf-8") as file:
                json.dump({**content, "runs": [*more, *content["runs"]]}, file)
            chapter = measured.load(self.folder)[0]
            return [step.name for step in chapter.steps], [peer.name for peer in chapter.peers]
        self.assertEqual(shown(alone, other), (["simple", "shared"], ["PyTorch eager"]))
        self.assertEqual(shown(other), (["simple", "shared"], []))
        self.assertEqual(shown(alone, alone)[1], [])  # of two results, such as forward and backward

    def test_the_ladder_at_the_most_tokens_stands_for_attention(self):
        self.write_all()
        runs = [{"problem": {"tokens": tokens}, "steps": [
            {"chapter": "01_naive_attention", "name": "attention",
             "modelled_limit_us": float(tokens), "flops": 1.0, "bytes": 1.0}]}
            for tokens in (1025, 197)]
        with open(self.path("ladder.json"), "w", encoding="utf-8") as file:
            json.dump({"runs": runs}, file)
        groups = measured.climbed(self.folder, measured.load(self.folder))
        self.assertEqual([step.us for step in groups[0][1]], [1025.0])
        self.assertEqual(len(groups), 2)

    def test_a_gpus_ladder_has_the_steps_of_all_tokens(self):
        for number, name, us in ((1, "01_naive_attention", 40.0), (2, "02_tiling", 20.0)):
            runs = [{"problem": {"tokens": tokens, "batch": 32, "heads": 12, "head_dim": 64},
                     "kernels": [kernel("before", 99.0), kernel(name[3:], us * tokens,
                                                                kernel_lines=9)]}
                    for tokens in (577, 197, 1025)[:3 if number == 1 else 2]]
            with open(self.path(f"chapter{number}.json"), "w", encoding="utf-8") as file:
                json.dump({"chapter": name, "device": {**DEVICE, "virtual": False}, "runs": runs},
                          file)
        found = measured.ladder_of(self.folder)
        self.assertEqual([run["problem"]["tokens"] for run in found["runs"]], [197, 577, 1025])
        self.assertEqual([[step["median_us"] for step in run["steps"]] for run in found["runs"]],
                         [[197 * 40.0], [577 * 40.0], [1025 * 40.0]])
        self.write_all()
        self.assertIsNone(measured.ladder_of(self.folder))  # of the virtual GPU ladder.json has it

    def test_what_is_no_result_is_named(self):
        with self.assertRaisesRegex(Refused, "no chapterN.json"):
            measured.load(self.folder)
        with open(self.path("chapter3.json"), "w", encoding="utf-8") as file:
            file.write('{"chapter": "03_x", "runs": []}')
        with self.assertRaisesRegex(Refused, "chapter3.json: not a result of make bench"):
            measured.load(self.folder)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_drawn_with_units_full_or_hollow(self):
        plt = palette.plot()
        for virtual in (True, False):
            self.write_all(virtual)
            chapters = measured.load(self.folder)
            found = {}
            for name, fig in measured.pictures(plt, chapters, self.folder):
                with self.subTest(name=name, virtual=virtual):
                    found[name] = fig
                    labels = [ax.get_xlabel() + ax.get_ylabel() for ax in fig.axes]
                    self.assertRegex(" ".join(labels), {
                        "speedup": "times as fast|limit", "roofline": "TFLOP/s", "memory": "MiB",
                        "lines": "GFLOP/s"}[name.split("_")[0]])
                    if name == "roofline":
                        dots = [line for line in fig.axes[0].lines if line.get_marker() == "o"]
                        self.assertEqual(len(dots), 4)
                        hollow = {str(line.get_markerfacecolor()) == "none" for line in dots}
                        self.assertEqual(hollow, {virtual})
                    plt.close(fig)
            self.assertEqual(set(found), {"roofline", *(
                f"{name}_{page}" for name in ("speedup", "memory", "lines") for page in ("1-6", "7"))})

    def test_pages_are_of_neighbouring_chapters(self):
        def step(number, us):
            return measured.Step(number, f"step {us}", us, False, 0, 0, 0, 0, 1)
        found = measured.paged([("a", [step(1, 9.0), step(5, 5.0), step(6, 3.0), step(6, 4.0), step(13, 2.0)]),
                                ("b", [step(13, 8.0), step(15, 7.0)]), ("c", [step(17, 1.0)])])
        self.assertEqual({page: [(title, [(of.chapter, of.us) for of in steps]) for title, steps in groups]
                          for page, groups in found.items()}, {
            "1-6": [("a", [(1, 9.0), (5, 5.0), (6, 3.0), (6, 4.0)])],
            # What goes on from an earlier page is compared with the fastest step there.
            "13-15": [("a", [(6, 3.0), (13, 2.0)]), ("b", [(13, 8.0), (15, 7.0)])],
            "17": [("c", [(17, 1.0)])]})

    def test_gradients_are_no_step_of_the_ladder(self):
        self.write_all()
        self.write(15, "15_gradients", SHARED, tokens=197)
        groups = measured.ladders(measured.load(self.folder))
        self.assertEqual([(title.split("\n")[0], [step.chapter for step in steps])
                          for title, steps in groups],
                         [("attention", [1, 2]), ("deformable", [7, 7]), ("gradients", [15, 15])])

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_every_picture_of_the_results_fits_a_screen_is_committed_and_linked(self):
        folder = os.path.join(ROOT, "data", "results", "virtual_h200")
        plt, chapters = palette.plot(), measured.load(folder)
        names = {"ladder"}
        for name, fig in measured.pictures(plt, chapters, folder):
            names.add(name)
            self.assertLessEqual(fig.get_figheight() * palette.DPI, 1250, name)
            right = max(ax._left_title.get_window_extent().x1 for ax in fig.axes)
            self.assertLessEqual(right, fig.bbox.x1, f"{name}: a title does not fit")
            plt.close(fig)
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            self.assertEqual(set(re.findall(r"data/results/virtual_h200/([\w-]+)\.svg", file.read())), names)
        self.assertEqual({file[:-4] for file in os.listdir(folder) if file.endswith(".svg")}, names)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_no_mark_goes_through_a_bars_text(self):
        plt = palette.plot()
        fig, axes = plt.subplots(figsize=(8, 2))
        steps = [measured.Step(1, str(i), 1.0, False, 0, 0, 0, 0, 1) for i in range(2)]
        measured.bars(axes, steps, [10.0, 10.0], ["some words"] * 2, [12.0, 90.0])
        axes.set_xlim(0, 100)
        measured.titled(fig, "")
        self.assertEqual([text.xy[0] for text in axes.texts], [12.0, 10.0])
        plt.close(fig)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_what_adds_whole_numbers_has_no_rate(self):
        self.write(0, "00_a_first_kernel", [{**of, "flops": 0} for of in SHARED], height=9)
        plt = palette.plot()
        def drawn():
            chapters = measured.load(self.folder)
            return measured.draw_lines(plt, chapters, measured.ladders(chapters))
        self.assertIsNone(drawn())
        self.write(7, "07_deformable", SHARED, queries=9)
        fig = drawn()
        self.assertEqual([ax.get_title(loc="left") for ax in fig.axes], ["deformable, queries 9"])
        plt.close(fig)

    def write_gains(self):
        with open(self.path("gains.json"), "w", encoding="utf-8") as file:
            json.dump({**GAINS, "device": {**DEVICE, "virtual": True}}, file)

    def test_predicted_times_stand_for_limits_where_all_steps_have_one(self):
        self.write(7, "07_deformable", [{**SHARED[0], **predicted(20.0)}, SHARED[1]], queries=9)
        steps = measured.load(self.folder)[0].steps
        self.assertEqual([(step.us, step.error) for step in steps], [(8.0, 0), (4.0, 0)])
        self.assertIn("modelled limits, hollow", measured.device_of(measured.load(self.folder)))
        self.write(7, "07_deformable", [{**SHARED[0], **predicted(20.0)},
                                        {**SHARED[1], **predicted(30.0)}], queries=9)
        chapters = measured.load(self.folder)
        self.assertEqual([(step.us, step.limit_us) for step in chapters[0].steps],
                         [(20.0, 8.0), (30.0, 4.0)])
        self.assertIn("predicted ±25%", measured.device_of(chapters))

    def test_sizes_that_matter_come_from_gains(self):
        self.write_all()
        self.write_gains()
        chapters = measured.load(self.folder)
        groups = measured.climbed(self.folder, chapters)
        self.assertEqual([title for title, _ in groups],
                         ["attention\nbatch 32, 577 tokens", "other\npreset deep"])
        self.assertEqual([(step.us, step.limit_us) for step in groups[0][1]],
                         [(40.0, 10.0), (20.0, 4.0)])
        self.assertEqual([(step.us, step.error) for step in groups[1][1]], [(4.0, 0), (2.0, 0)])

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_predicted_is_hollow_with_its_limit_as_a_thin_mark(self):
        self.write_all()
        self.write_gains()
        chapters = measured.load(self.folder)
        fig = measured.draw_speedup(palette.plot(), chapters, measured.climbed(self.folder, chapters))
        ladder_axes = fig.axes[0]
        self.assertTrue(all(bar.get_facecolor()[3] < 0.2 for bar in ladder_axes.patches))
        self.assertEqual([list(line.get_xdata()) for line in ladder_axes.lines],
                         [[4.0, 4.0], [10.0, 10.0]])  # 40 / 10 and 40 / 4
        self.assertEqual(fig.axes[1].lines[:], [])  # its bars are the limits

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_why_warps_wait_is_stacked_to_the_whole(self):
        self.write_all()
        plt, chapters = palette.plot(), measured.load(self.folder)
        def drawn():
            return {name: fig for name, fig in measured.pictures(plt, chapters, self.folder)
                    if name.startswith("waits")}
        self.assertEqual(drawn(), {})
        self.write_gains()
        pages = drawn()
        self.assertEqual(list(pages), ["waits_1-6", "waits_7"])
        fig = pages["waits_1-6"]
        ends = {}
        for bar in fig.axes[0].patches:
            ends[bar.get_y()] = max(ends.get(bar.get_y(), 0), bar.get_x() + bar.get_width())
        self.assertEqual([round(end, 6) for end in ends.values()], [100.0, 100.0])
        texts = [text.get_text() for text in fig.legends[0].get_texts()]
        self.assertIn("long_scoreboard: global memory", texts)
        self.assertIn("other", texts)  # sleeping, which has no colour
        self.assertNotIn("barrier: barrier of the block", texts)
        self.assertIn("±25%", fig._suptitle.get_text())
        self.assertEqual([label.get_text() for label in pages["waits_7"].axes[0].get_yticklabels()],
                         ["7  shared"])
        plt.close("all")

    def ladder_run(self, us, name="run.json"):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump({"problem": {"batch": 1, "heads": 12, "head_dim": 64, "tokens": 197},
                       "device": {"name": "x", "virtual": True}, "nvcc": "13.0", "steps": [
                           {"chapter": "01_naive", "name": "attention", "modelled_limit_us": 3.0,
                            "predicted_us": us, "predicted_error": 0.25 if us else None,
                            "predicted_why": None if us else "no ptxas"}]}, file)
        return self.path(name)

    def test_a_ladders_predictions_may_differ_by_two_percent(self):
        path = self.path("ladder.json")

        def checked(us, ptxas):
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(said):
                return ladder.check(path, ladder.merge([self.ladder_run(us)], ptxas))
        results.write(path, results.text_of(ladder.merge([self.ladder_run(100.0)], "V13")))
        said = io.StringIO()
        self.assertEqual([checked(us, "V13") for us in (100.0, 101.0, 110.0, None)], [0, 0, 1, 1])
        self.assertNotIn("not compared", said.getvalue())
        self.assertEqual(checked(200.0, "V12"), 0)
        self.assertIn("not compared: the file is of ptxas V13, these runs of V12", said.getvalue())

    def test_published_rates_are_of_heads_of_64(self):
        problem = {"batch": 2, "heads": 3, "tokens": 197, "head_dim": 64}
        us = ladder.published_us(problem)
        self.assertEqual(set(us), {"FlashAttention-2", "cuDNN", "FlashAttention-3"})
        # Both products of 6 heads, a multiply-add is two operations; 306e6 of them in a microsecond.
        self.assertAlmostEqual(us["FlashAttention-2"][1024], 2 * 2 * 6 * 1024**2 * 64 / 306e6)
        self.assertEqual(ladder.published_us({**problem, "head_dim": 32}), {})

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_published_rates_stand_beside_chapter_13(self):
        problem = {"batch": 1, "heads": 12, "tokens": 197, "head_dim": 64}
        axes = palette.plot().subplots()[1]
        self.assertEqual(ladder.published(axes, problem, {"06_coalesced_k"}), [])
        self.assertEqual(len(axes.lines), 0)
        ends = ladder.published(axes, problem, {"06_coalesced_k", "13_flash_attention"})
        self.assertEqual([text.split(":")[0] for _, text, _ in ends],
                         [f"{name}, published, H100" for name in ladder.PUBLISHED])
        self.assertEqual([list(line.get_xdata()) for line in axes.lines], 3 * [[512, 1024]])

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_the_same_bytes_twice(self):
        plt = palette.plot()
        self.write_all()
        for stem in ("a", "b"):
            chapters = measured.load(self.folder)
            fig = measured.draw_lines(plt, chapters, measured.ladders(chapters))
            palette.save(fig, self.path(stem))
            plt.close(fig)
        with open(self.path("a.svg"), "rb") as a, open(self.path("b.svg"), "rb") as b:
            self.assertEqual(a.read(), b.read())


class Palette(unittest.TestCase):
    def test_contrast_by_hand(self):
        self.assertAlmostEqual(palette.contrast("#ffffff", "#000000"), 21)
        self.assertAlmostEqual(palette.contrast("#777777", "#777777"), 1)

    def test_every_colour_is_readable_on_white_and_on_dark(self):
        for color in palette.CHAPTERS:
            self.assertTrue(re.fullmatch("#[0-9a-f]{6}", color))
            for ground in palette.GROUNDS:
                self.assertGreaterEqual(palette.contrast(color, ground), 3)
        for ground in palette.GROUNDS:
            self.assertGreaterEqual(palette.contrast(palette.INK, ground), 4)

    def test_no_two_chapters_look_alike(self):
        self.assertEqual(len(set(palette.CHAPTERS)), 8)
        self.assertEqual(palette.of_chapter(1), palette.CHAPTERS[0])


class Memories(Case):
    TABLE = """constexpr std::array<int, 3> kArchitectures = {75, 90, 120};
        {&Timing::a, "l1_latency", {{{32, kFeng}, {41, "guessed: {7, 8}"}, {43, kLike}}}},
        {&Timing::b,
         "l2_latency", all(200, "guessed")},"""

    def test_clocks_are_those_of_the_architecture(self):
        with open(self.path("t.cpp"), "w", encoding="utf-8") as file:
            file.write(self.TABLE)
        self.assertEqual(memories.clocks_of(self.path("t.cpp"), 90),
                         {"l1_latency": 41, "l2_latency": 200})
        self.assertEqual(memories.clocks_of(self.path("t.cpp"), 120)["l1_latency"], 43)

    def test_facts_of_the_h200(self):
        vgpu = os.path.join(ROOT, "common", "vgpu")
        device = memories.device_of(os.path.join(vgpu, "profile", "devices", "h200.json"))
        clocks = memories.clocks_of(os.path.join(vgpu, "time", "timing.cpp"), 90)
        rows = {row[0]: row[2:] for row in memories.facts(device, clocks)}
        self.assertEqual(rows["registers"][0], "256 KiB an SM")
        self.assertEqual(rows["shared memory"], ("up to 227 KiB of the L1", "23", "128"))
        self.assertEqual(rows["L2"][:2], ("60 MiB", "282"))
        self.assertEqual(rows["DRAM"], ("140 GiB", "655", "18"))


class Lessons(unittest.TestCase):
    RATIOS = [{"before": "naive", "after": "tiling", "of": "predicted times"}]

    def test_predicted_times_of_launches_and_steps(self):
        def launch(name, us):
            return {"name": name, "counters": predicted(us)}
        kernels = [launch("scores", 30.0), launch("values", 10.0), {"name": "naive"},
                   launch("tiling", 20.0)]
        lines = counter_tables.predicted_lines({"kernels": kernels, "ratios": self.RATIOS})
        self.assertIn("Predicted times, ±25%:", lines)
        self.assertIn("| naive | 40 | 50 % | long_scoreboard 75% |", lines)
        self.assertIn("In all, predicted: naive 40 µs, tiling 20 µs, 2 times as fast.", lines)

    def test_no_prediction_has_its_reason_and_no_ratio(self):
        why = {"counters": {"predicted": {"us": None, "why": "no ptxas"}}}
        lines = counter_tables.predicted_lines(
            {"kernels": [{"name": "naive", **why}, {"name": "tiling", "counters": predicted(2.0)}],
             "ratios": self.RATIOS})
        self.assertIn("No predicted time of naive: no ptxas", lines)
        self.assertNotIn("In all", " ".join(lines))
        self.assertEqual(counter_tables.predicted_lines({"kernels": [{"name": "naive"}]}), [])


class Joined(unittest.TestCase):
    """A limit of machine code whose accesses are fewer than those of PTX."""
    KERNELS = [{"name": "a", "counters": {"limits": {"L1/shared": 2.0, "issue": 3.0}}},
               {"name": "b", "counters": {"limits": {"L1/shared": 1.0, "issue": 3.0},
                                          "limits_by_ptx": {"L1/shared": 1.5}}}]

    def test_it_says_so(self):
        lines = counter_tables.joined_lines(self.KERNELS)
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1],
                         r"^L1/shared of \*b\* counts .* machine code.* PTX .* 1\.50 µs\.$")

    def test_formulas_are_of_ptx(self):
        def wrong(kernel, clocks):
            return formulas.wrong_counters([(kernel, "clocks.L1/shared", str(clocks))],
                                                   self.KERNELS, {}, 1e9)
        self.assertEqual(wrong("a", 2000), [])
        self.assertEqual(wrong("b", 1500), [])
        self.assertEqual(wrong("b", 1000), ["b: clocks.L1/shared: 1000 = 1,000, counted 1,500.0"])


class Labels(unittest.TestCase):
    def test_lines_that_go_through_a_box(self):
        box = labels.Box(10, 10, 20, 20)
        for line, through in (((0, 15, 30, 15), True), ((0, 15, 9, 15), False),
                              ((0, 5, 30, 5), False), ((15, 0, 15, 30), True),
                              ((0, 0, 30, 30), True),
                              ((0, 12, 12, 0), False), ((12, 12, 14, 14), True)):
            self.assertEqual(box.crossed_by(*line), through, line)
        self.assertTrue(box.meets(labels.Box(21, 10, 30, 20)))  # nearer than the gap
        self.assertFalse(box.meets(labels.Box(24, 10, 30, 20)))

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_no_label_covers_another_or_a_point(self):
        plt = palette.plot()
        fig, ax = plt.subplots(figsize=(8, 5))
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(1, 1000)
        ax.set_ylim(1, 1000)
        points = [(100, 10 * 1.02 ** i, f"chapter and step {i}", "black") for i in range(12)]
        points += [(140, 11, "beside them", "black"), (900, 990, "in the corner", "black")]
        other = ax.text(150, 10, "what stands there")
        fig.tight_layout()
        texts = labels.place(ax, points, [other])
        renderer = fig.canvas.get_renderer()
        boxes = [labels.box_of(text, renderer) for text in [*texts, other]]
        for i, box in enumerate(boxes):
            self.assertTrue(box.inside(labels.box_of(ax, renderer)))
            self.assertFalse(any(box.meets(after, 0) for after in boxes[i + 1:]))
            for x, y, *_ in points:
                at_x, at_y = ax.transData.transform((x, y))
                if i < len(texts):
                    self.assertFalse(box.meets(labels.Box(at_x, at_y, at_x, at_y), 0))
        self.assertEqual(sorted(text.get_text() for text in texts),
                         sorted(words for *_, words, _ in points))
        plt.close(fig)

    @unittest.skipUnless(matplotlib, "no matplotlib")
    def test_no_room_is_said(self):
        plt = palette.plot()
        fig, ax = plt.subplots(figsize=(2, 1))
        with self.assertRaisesRegex(ValueError, "no room for the label 'a word that is far too"):
            labels.place(ax, [(0.5, 0.5, "a word that is far too long for this", "black")])
        plt.close(fig)


class Sized(Case):
    """What the roofline shows of the virtual GPU."""

    def test_the_runs_at_sizes_that_matter_where_their_bytes_are_known(self):
        device = {**DEVICE, "virtual": True}
        chapter = measured.Chapter(1, "naive", "batch 1", device, False, [
            measured.Step(1, "attention", 4.0, False, 8e6, 500, 0, 0, 1, error=0.25, limit_us=2.0)],
            [])
        found = copy.deepcopy(GAINS)
        with open(self.path("gains.json"), "w", encoding="utf-8") as file:
            json.dump(found, file)
        steps, problems = measured.sized([chapter], self.folder)
        self.assertEqual(([step.us for step in steps], problems), ([4.0], ""))  # an older file
        for step in found["runs"][0]["steps"]:
            step["flops"], step["predicted"]["dram_bytes"] = 16e6, 1000.0
        with open(self.path("gains.json"), "w", encoding="utf-8") as file:
            json.dump(found, file)
        steps, problems = measured.sized([chapter], self.folder)
        self.assertEqual([(step.us, step.flops, step.dram_bytes) for step in steps],
                         [(40.0, 16e6, 1000.0), (20.0, 16e6, 1000.0)])
        self.assertEqual(problems, "attention: batch 32, 577 tokens")


class Quotes(Case):
    def test_a_lesson_quotes_all_steps_of_its_chapter_and_no_exercise(self):
        for folder, names in (("", ("kernel", "wide_loads")), ("projection", ("fused",)),
                              ("exercise", ("exercise", "solution", "solution2", "task2", "bug"))):
            os.makedirs(self.path(folder), exist_ok=True)
            for name in names:
                with open(os.path.join(self.path(folder), name + ".cuh"), "w", encoding="utf-8") as file:
                    file.write(f"int {name};\n")
        kernel = code_quotes.kernel_text(self.folder)
        lesson = "".join(f"    int {name};\n"
                         for name in ("kernel", "wide_loads", "task2", "fused", "bug"))
        self.assertEqual(code_quotes.stray_quotes(lesson, kernel), ["int task2;", "int bug;"])


if __name__ == "__main__":
    unittest.main()
