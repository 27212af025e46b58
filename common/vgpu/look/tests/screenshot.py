#!/usr/bin/env python3
"""A picture of a page of --look, for a lesson.

    screenshot.py OUT.png PAGE.html source KERNEL TEXT [HEAT]    the first line with that text, and its access
    screenshot.py OUT.png PAGE.html block KERNEL TEXT [CLOCKS]   a block over time, from its first access there

KERNEL is a part of a kernel's name. Exit status: 0 done, 2 bad usage, 3 no Chromium.
"""
import json
import os
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
import browser  # noqa: E402

FIND = """(() => {
    const index = LOOK.launches.findIndex(launch => launch.kernel.includes(%s));
    if (index < 0) throw new Error('no such kernel');
    selectLaunch(index);
    const row = LOOK.sources[state.file].lines.findIndex((line, i) =>
        line.includes(%s) && model().ptxOfLine.has(lineKey(state.file, i + 1)));
    if (row < 0) throw new Error('no such line');
    return row;
})()"""
# The first access of warp 0 on the line, and a stretch of so many clocks that begins a little before.
STEP = """(() => {
    showTab('block');
    const ptx = new Set(model().ptxOfLine.get(lineKey(state.file, %d + 1)));
    const {chart} = blockView, at = chart.rows[0].segments.findIndex(s => ptx.has(s.ptx) && isIssue(s.kind));
    if (at < 0) throw new Error('no access there');
    chart.choose(0, at);
    const span = %d || chart.last - chart.first;
    chart.view(chart.segment().begin - span / 12, span);
})()"""


def main(arguments):
    if len(arguments) not in (5, 6) or arguments[2] not in ("source", "block"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    out, page, view, kernel, text = arguments[:5]
    if not browser.executable():
        print(f"{out}: left as it is: no Chromium here (Debian's package chromium)", file=sys.stderr)
        return 3
    with browser.Browser() as chromium:
        chromium.open(page, width=1120, height=790 if view == "source" else 860)
        row = chromium.js(FIND % (json.dumps(kernel), json.dumps(text)))
        if view == "source":
            chromium.js(f"setHeat({json.dumps(arguments[5] if len(arguments) > 5 else 'time')})")
            chromium.js("showTab('source')")
            chromium.js(f"selectRow('source', {row})")
        else:
            chromium.js(STEP % (row, int(arguments[5]) if len(arguments) > 5 else 0))
        chromium.settle()
        chromium.screenshot(out)
        if chromium.errors:
            raise SystemExit(f"{page}: {chromium.errors}")
    print(f"{out}: {pathlib.Path(out).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
