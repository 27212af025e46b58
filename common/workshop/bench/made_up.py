"""A table as Nsight Compute prints it, made up from what the virtual GPU predicts: for rehearsals
and tests of what compares the two. Nothing in it was measured."""
import timed

HEAD = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
        "Block Size", "Grid Size", "Device", "CC"]


def metrics_of(launch, slower=1.05):
    """{metric: (unit, number)} of a launch with a prediction, on a GPU that is so much slower,
    issues as much more seldom, and waits a little more for memory."""
    predicted = launch["predicted"]
    found = {"gpu__time_duration.sum": ("nsecond", round(1e3 * slower * predicted["us"])),
             "smsp__inst_executed.sum": ("inst", round(1.01 * predicted["machine_instructions"])),
             "smsp__issue_active.avg.pct_of_peak_sustained_active":
                 ("%", 100 * predicted["issue_share"] / slower)}
    if predicted.get("sm_us"):
        found["smsp__cycles_elapsed.avg.per_second"] = (
            "cycle/nsecond", 1e-3 * predicted["clocks"] / predicted["sm_us"])
    for pipe, of in predicted.get("pipes", {}).items():
        metric = f"sm__inst_executed_pipe_{pipe}"
        found[f"{metric}.sum"] = ("inst", round(of["instructions"]))
        found[f"{metric}.avg.pct_of_peak_sustained_active"] = ("%", 100 * of["share"] / slower)
    issuing = predicted["stalls"].get("selected") or 1.0
    for reason, share in predicted["stalls"].items():
        names = timed.STALL_METRICS.get((reason, timed.FORMS[0]))
        if names:
            more = 0.05 if reason == "long_scoreboard" else 0.0
            found[names[0]] = ("", (share + more) / issuing)
    return found


def text(launches, times=1):
    """The table. launches: [(what the virtual GPU wrote of it, {metric: (unit, number)})]; times:
    how often the program launches each."""
    names = sorted({name for _, metrics in launches for name in metrics})
    units = {name: unit for _, metrics in launches for name, (unit, _) in metrics.items()}

    def line(cells):
        return ",".join(f'"{cell}"' for cell in cells)
    lines = ["==PROF== Connected to process 4711 (chapter3)", line([*HEAD, *names]),
             line([*("" for _ in HEAD), *(units[name] for name in names)])]
    for i, (launch, metrics) in enumerate(of for of in launches for _ in range(times)):
        cells = [i, 4711, "chapter3", "127.0.0.1", launch["mangled"], 1, 7,
                 "({}, {}, {})".format(*launch["block"]), "({}, {}, {})".format(*launch["grid"]), 0,
                 "9.0"]
        values = (metrics.get(name, ("", "n/a"))[1] for name in names)
        lines.append(line([*cells, *(f"{v:,}" if isinstance(v, int) else
                                     f"{v:,.6f}" if isinstance(v, float) else v for v in values)]))
    return "\n".join([*lines, "==PROF== Disconnected from process 4711"]) + "\n"
