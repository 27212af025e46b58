#!/usr/bin/env python3
"""Writes the numbers of texts, or says which are stale: `make docs`.

    docs.py [--check] [--results FOLDER] TEXT[=RESULT.json[,RESULT.json]]...

A text is a lesson, the front page or another Markdown file. What is written there, each by its own module:

    counter_tables.py   tables between <!-- counters:begin --> and <!-- counters:end -->, of the RESULT.json
                        that `./run --json` wrote on the virtual GPU, one for each such block
    formulas.py         what these counters must be (compared, not written)
    code_quotes.py      lines of code that a lesson quotes (compared, not written)
    gain_tables.py      tables between <!-- gains:begin 7 --> and <!-- gains:end -->
    front_page.py       what each chapter bought, and the table of GPUs, on the page that has one
    stated.py           numbers in sentences

All but the counters come from the folders in FOLDER, data/results by default.

Exit status: 0 written or up to date, 1 something is stale or does not hold, 2 bad input.
"""
import argparse
import difflib
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(HERE, "..", name) for name in ("bench", "figures")]
import code_quotes  # noqa: E402
import counter_tables  # noqa: E402
import front_page  # noqa: E402
import gain_tables  # noqa: E402
import gains  # noqa: E402
import results  # noqa: E402
import stated  # noqa: E402
from results import Refused  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def refreshed(path, text, runs, folder):
    """(the text with its numbers anew, what does not hold in words). runs: paths of ./run's results."""
    wrong = []
    if runs:
        stray = code_quotes.stray_quotes(text, code_quotes.kernel_text(os.path.dirname(path)))
        text, formulas = counter_tables.refreshed(text, [results.read(run) for run in runs])
        wrong += [f"formula: {words}" for words in formulas]
        wrong += [f"does not stand in the kernel: {quote.strip()}" for quote in stray]
    if "\n<!-- gains:" in text:
        virtual = os.path.join(folder, "virtual_h200")
        text = gain_tables.refreshed(text, gains.load(virtual))
    if front_page.ROW.search(text):
        page = os.path.dirname(os.path.abspath(path))
        folders = sorted({os.path.dirname(of) for of in glob.glob(os.path.join(folder, "*", "chapter*.json"))})
        text = front_page.refreshed(text, folders, page)
    numbers = stated.Text(text)
    return numbers.new, wrong + numbers.wrong


def refresh(path, runs, folder, check):
    """Returns the exit status."""
    with open(path, encoding="utf-8") as file:
        old = file.read()
    new, wrong = refreshed(path, old, runs, folder)
    for words in wrong:
        print(f"{path}: {words}", file=sys.stderr)
    if new == old:
        return bool(wrong)
    if not check:
        results.write(path, new)
        print(f"{path}: numbers written")
        return bool(wrong)
    print(f"{path}: numbers are stale; `make docs` writes these:", file=sys.stderr)
    sys.stderr.writelines(line + "\n" for line in difflib.unified_diff(
        old.splitlines(), new.splitlines(), os.path.basename(path), "results", n=0, lineterm=""))
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when stale")
    parser.add_argument("--results", default=os.path.join(ROOT, "data", "results"))
    parser.add_argument("text", nargs="+")
    options = parser.parse_args()
    status = 0
    for text in options.text:
        path, _, runs = text.partition("=")
        try:
            status = max(status, refresh(path, list(filter(None, runs.split(","))), options.results, options.check))
        except (OSError, UnicodeDecodeError, KeyError, Refused) as error:
            print(f"docs: {path}: {f'no {error} in a result' if isinstance(error, KeyError) else error}",
                  file=sys.stderr)
            status = 2
    if status == 0:
        print(f"texts with numbers up to date: {len(options.text)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
