"""Tables of what each step bought, from gains.json: predicted times, never typed by hand.

The text between lines `<!-- gains:begin 7 -->` and `<!-- gains:end -->` becomes the tables of chapter
7: one for each problem in gains.json, a row a step, then which steps do not pay. Of `3`, a chapter of
attention's ladder, it is the rows of chapter 3 below the fastest step of the chapter before; of `1-6`
the whole ladder. `<!-- gains:begin 1-8 waits -->` shows why warps wait instead, `<!-- gains:begin 11
lines -->` the predicted TFLOP/s beside the lines of code, of chapter 16 also those of its products;
`<!-- gains:begin 11 variants of pipeline -->` that step and what was tried in its place and not kept,
`variants of wgmma: no turns, one block` only these. READMEs without such lines are left alone. Of q, k and
v projected inside attention's kernel or apart it is a table over the sizes.

A step pays when its predicted time is below that of the fastest step before it, by more than 2%.
"""
import re

import gains
import predictions
import problems
import reference
import results
from predictions import micros
from results import Refused

BLOCK = re.compile(r"^<!-- gains:begin (?P<first>\d+)(?:-(?P<last>\d+))?"
                   r"(?: (?P<what>waits|lines|variants of [^\n]+?))? -->\n"
                   r"(?P<old>.*?)^<!-- gains:end -->\n", re.MULTILINE | re.DOTALL)
MOST_REASONS = 3


def number(step):
    return results.number_of(step["chapter"])


def us_of(step):
    """The predicted time, or None."""
    return step["predicted"].get("us")


def fastest(steps):
    return min((step for step in steps if us_of(step)), key=us_of, default=None)


def chosen(run, first, last):
    """(the steps of these chapters, the fastest step of the chapter before or None)."""
    steps = [step for step in run["steps"] if first <= number(step) <= last]
    earlier = [number(step) for step in run["steps"] if number(step) < first]
    before = fastest([step for step in run["steps"]
                      if earlier and number(step) == max(earlier)]) if steps else None
    return steps, before


def losing(steps, before=None):
    """[(step, the fastest before it)] of the steps that do not pay."""
    best, found = before, []
    for step in steps:
        if us_of(step) is None:
            continue
        if best is not None and us_of(step) > us_of(best) / 1.02:
            found.append((step, best))
        best = fastest([of for of in (best, step) if of is not None])
    return found


def gain_rows(steps, before):
    rows, last = [], None
    for step in ([before] if before else []) + steps:
        us = us_of(step)
        cells = [step["name"], micros(us) if us else "-"]
        cells.append(predictions.times(us_of(last), us) if last and us and us_of(last) else "")
        cells.append(f"{micros(step['bound_us'])} ({step['bound']})" if step["bound"] else "-")
        cells.append(predictions.main_reason(step["predicted"]))
        rows.append(cells)
        last = step
    return rows


def waits_rows(steps):
    rows = []
    for step in steps:
        predicted = step["predicted"]
        found = predictions.waits(predicted.get("stalls", {}))[:MOST_REASONS]
        rows.append([step["name"], f"{100 * predicted.get('issue_share', 0):.0f}%" if found else "-",
                     "; ".join(f"{name} {100 * share:.0f}%: {predictions.REASONS.get(name, name)}"
                               for name, share in found)])
    return rows


def lines_rows(steps, component=None):
    rows = []
    for step in steps:
        us, flops = us_of(step), step.get("flops")
        kernel = f"{component} {step['name']}" if component else step["name"]
        lines = problems.kernel_lines(number(step), kernel)
        rows.append([step["name"], f"{flops / us / 1e6:.3g}" if us and flops else "-",
                     str(lines) if lines else "-",
                     "-" if lines is None else
                     "tile.cuh" if problems.uses_tiles(number(step), kernel) else "plain CUDA"])
    return rows


def variants_rows(run, chapter, name):
    """The step of that name, and the chapter's variants beside it; no rows where one of them lacks.
    name: 'wgmma', or 'wgmma: one block, no turns' for these variants alone."""
    name, _, only = name.partition(": ")
    kept = next((step for step in run["steps"]
                 if number(step) == chapter and step["name"] == name), None)
    tried = [step for step in run.get("variants", []) if number(step) == chapter]
    if only:
        tried = [step for step in tried if step["name"] in only.split(", ")]
    if kept is None or len(tried) < max(1, len(only.split(", ")) if only else 1):
        return []
    return [[step["name"], micros(us_of(step)) if us_of(step) else "-",
             predictions.times(us_of(kept), us_of(step))
             if step is not kept and us_of(kept) and us_of(step) else "",
             predictions.main_reason(step["predicted"])] for step in [kept, *tried]]


def table(head, rows, right):
    return ["| " + " | ".join(head) + " |",
            "|" + "|".join("--:" if i in right else "---" for i in range(len(head))) + "|",
            *("| " + " | ".join(row) + " |" for row in rows)]


def by_size(steps):
    """Rows of tokens, columns of widths: 'apart T x W' beside 'inside T x W'. Bold: the faster way."""
    us = {}
    for step in steps:
        way, tokens, _, width = step["name"].split()
        us[way, int(tokens), int(width)] = us_of(step)
    widths = sorted({width for _, _, width in us})

    def cell(tokens, width):
        both = [us.get((way, tokens, width)) for way in ("apart", "inside")]
        texts = [micros(of) if of else "-" for of in both]
        if all(both):
            faster = both.index(min(both))
            texts[faster] = f"**{texts[faster]}**"
        return " / ".join(texts)
    return table(["tokens", *(f"width {width}" for width in widths)],
                 [[str(tokens), *(cell(tokens, width) for width in widths)]
                  for tokens in sorted({tokens for _, tokens, _ in us})],
                 range(len(widths) + 1))


def verdict(steps, before):
    """What does not pay, and what has no prediction, in sentences."""
    lines = []
    lost = [f"*{step['name']}* is {predictions.times(us_of(best), us_of(step))} "
            f"{'than' if 'no faster' == predictions.times(us_of(best), us_of(step)) else 'as'} "
            f"*{best['name']}*" for step, best in losing(steps, before)]
    if lost:
        lines += ["", "What does not pay here: " + "; ".join(lost) + "."]
    above = [step for step in steps if us_of(step) and step["bound_us"] > 1.02 * us_of(step)]
    if above:
        names = ", ".join(f"*{step['name']}* ({step['bound']})" for step in above)
        lines += ["", f"The limit of {names} is above the prediction: the simulator finds less "
                  "work there than the limit counts."]
    for step in steps:
        if "why" in step["predicted"]:
            lines += ["", f"No predicted time of {step['name']}: {step['predicted']['why']}"]
    return lines


def block(found, first, last, what):
    """The lines of a block; what: waits, lines, variants of a step or None."""
    lines = []
    error = gains.error_of(found)
    of_ptxas = f", machine code of ptxas {found['ptxas']}" if "ptxas" in found else ""
    for run in found["runs"] + (found.get("products", []) if what == "lines" else []):
        steps, before = chosen(run, first, last)
        tried = what.removeprefix("variants of ") if what and what.startswith("variants") else None
        if not steps or tried and not variants_rows(run, first, tried):
            continue
        lines += ["", f"Virtual {found['device']['name']}, {run['title']}, {gains.short(run)}"
                  f"{of_ptxas}:", ""]
        stated = f" ±{100 * error:.0f}%" if error is not None else ""
        if run["title"] == gains.PROJECTION:
            lines[-2] = lines[-2].rstrip(":") + "; apart / inside, predicted µs:"
            lines += by_size(steps)
        elif what == "waits":
            lines += table(["step", "issue slots used", "why warps wait, in shares of their time"],
                           waits_rows(steps), (1,))
        elif what == "lines":
            lines += table(["step", f"TFLOP/s, predicted{stated}", "lines of code", "written in"],
                           lines_rows(steps, run["problem"].get("component")), (1, 2))
        elif tried:
            lines += table(["step", f"predicted{stated}, µs", f"beside {tried.partition(': ')[0]}",
                            "warps wait most for"], variants_rows(run, first, tried), (1,))
        else:
            lines += table(["step", f"predicted{stated}, µs", "over the step before",
                            "modelled limit, µs", "warps wait most for"],
                           gain_rows(steps, before), (1,))
            lines += verdict(steps, before)
    if not lines:
        raise Refused(f"gains:begin {first}{f'-{last}' if last != first else ''}"
                      f"{f' {what}: no such step or no variants' if what else ': no such chapter'} "
                      f"in {gains.FILE}")
    return "\n".join(lines) + "\n\n"


def refreshed(text, found):
    """The README with its blocks anew. Throws Refused where a block has no end, or there is no gains.json."""
    if found is None:
        raise Refused(f"{gains.FILE} is not there: `{reference.RENEW}` writes it")
    if not all(len(BLOCK.findall(text)) == len(re.findall(f"^<!-- gains:{end}", text, re.MULTILINE))
               for end in ("begin", "end")):
        raise Refused("a line '<!-- gains:begin 7 -->' and after it one '<!-- gains:end -->' must "
                      "stand around what gains.json gives")

    def new(match):
        first = int(match["first"])
        lines = block(found, first, int(match["last"] or first), match["what"])
        return match[0][:match.start("old") - match.start()] + lines + "<!-- gains:end -->\n"
    return BLOCK.sub(new, text)
