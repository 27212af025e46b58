#!/usr/bin/env python3
"""same_values.py A.json B.json: whether two runs of a chapter, of --json, say the same of the virtual GPU.

All values are compared but those of the host: its times, the time of day. Prints the first ten that differ;
exit status 1 if any does.
"""
import json
import sys

OF_THE_HOST = {"time", "median_us", "min_us", "mean_us", "std_us", "spread", "samples", "host_seconds"}


def values(node, path=""):
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in OF_THE_HOST:
                yield from values(value, f"{path}/{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from values(value, f"{path}/{number}")
    else:
        yield path, node


def main(first, second):
    runs = [dict(values(json.load(open(name)))) for name in (first, second)]
    paths = sorted(runs[0].keys() | runs[1].keys())
    different = [path for path in paths if runs[0].get(path, "not there") != runs[1].get(path, "not there")]
    for path in different[:10]:
        print(f"{path}: {runs[0].get(path, 'not there')} and {runs[1].get(path, 'not there')}")
    print(f"{len(paths) - len(different)} values are the same, {len(different)} differ")
    return 1 if different or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
