"""What nvidia-smi says of the GPU that is measured."""
import contextlib
import os
import shutil
import subprocess
import tempfile

from results import Lacking

# Name in the result, query. All of them since the drivers of CUDA 11.
QUERY = (("name", "name"), ("driver", "driver_version"), ("sm_mhz", "clocks.sm"),
         ("memory_mhz", "clocks.mem"), ("most_sm_mhz", "clocks.max.sm"),
         ("temperature_c", "temperature.gpu"), ("power_w", "power.draw"), ("state", "pstate"),
         ("busy_percent", "utilization.gpu"))
POLL_MS = 200
UNITS = ("_mhz", "_c", "_w", "_percent")  # of numbers


def parsed(line):
    """The answer as {name: number or text}; what a GPU does not tell ('[N/A]') is None."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(QUERY):
        raise Lacking(f"nvidia-smi answers '{line}' where {len(QUERY)} values were asked for")
    answer = {}
    for (name, _), value in zip(QUERY, values):
        try:
            answer[name] = float(value) if name.endswith(UNITS) else value
        except ValueError:
            answer[name] = None
    return answer


def _query():
    # CUDA's device 0 is the first that the variable leaves, an index or a UUID.
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    return gpu, ["nvidia-smi", "-i", gpu, "--query-gpu=" + ",".join(query for _, query in QUERY),
                 "--format=csv,noheader,nounits"]


def state():
    """Name, driver, clocks, temperature and power now. Throws Lacking where there is no GPU."""
    if not shutil.which("nvidia-smi"):
        raise Lacking("no nvidia-smi here: measuring needs a GPU and its driver")
    gpu, query = _query()
    done = subprocess.run(query, text=True, capture_output=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        said = (done.stdout + done.stderr).strip().splitlines()
        raise Lacking(f"nvidia-smi finds no GPU {gpu}: {said[0] if said else 'no answer'}")
    return parsed(done.stdout.strip().splitlines()[0])


def clocks_of(states):
    """What was seen in between: numbers of samples, least and most of clocks, power, temperature.

    `busy`: the same of the samples in which the GPU was at work most of the time. Between kernels,
    while the host works out what they should compute, the clocks are those of an idle GPU.
    """
    def range_of(states, name):
        values = [state[name] for state in states if state[name] is not None]
        return {"min": min(values), "max": max(values)} if values else None

    def of(states):
        return {"samples": len(states), **{name: range_of(states, name) for name in (
            "sm_mhz", "memory_mhz", "temperature_c", "power_w")}}
    return {**of(states),
            "busy": of([state for state in states if (state["busy_percent"] or 0) >= 50])}


@contextlib.contextmanager
def watched(into):
    """While this lasts the GPU's state is asked for, POLL_MS apart; `into` gets clocks_of() it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen([*_query()[1], f"--loop-ms={POLL_MS}"], stdout=said,
                                   stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()
            said.seek(0)
            states = []
            for line in said:
                if not line.endswith("\n"):
                    continue  # the end came in the middle of it
                try:
                    states.append(parsed(line.strip()))
                except Lacking:
                    continue  # a GPU that is lost for a moment says so
            into.update(clocks_of(states))
