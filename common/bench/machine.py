"""What nvidia-smi says of the GPU that is measured."""
import os
import shutil
import subprocess

from results import Lacking

# Name in the result, query. All of them since the drivers of CUDA 11.
QUERY = (("name", "name"), ("driver", "driver_version"), ("sm_mhz", "clocks.sm"),
         ("memory_mhz", "clocks.mem"), ("most_sm_mhz", "clocks.max.sm"),
         ("temperature_c", "temperature.gpu"), ("power_w", "power.draw"), ("state", "pstate"))


def parsed(line):
    """The answer as {name: number or text}; what a GPU does not tell ('[N/A]') is None."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(QUERY):
        raise Lacking(f"nvidia-smi answers '{line}' where {len(QUERY)} values were asked for")
    answer = {}
    for (name, _), value in zip(QUERY, values):
        try:
            answer[name] = float(value) if name.endswith(("_mhz", "_c", "_w")) else value
        except ValueError:
            answer[name] = None
    return answer


def state():
    """Name, driver, clocks, temperature and power now. Throws Lacking where there is no GPU."""
    if not shutil.which("nvidia-smi"):
        raise Lacking("no nvidia-smi here: measuring needs a GPU and its driver")
    # CUDA's device 0 is the first that the variable leaves, an index or a UUID.
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    done = subprocess.run(
        ["nvidia-smi", "-i", gpu, "--query-gpu=" + ",".join(query for _, query in QUERY),
         "--format=csv,noheader,nounits"], text=True, capture_output=True, timeout=60, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        said = (done.stdout + done.stderr).strip().splitlines()
        raise Lacking(f"nvidia-smi finds no GPU {gpu}: {said[0] if said else 'no answer'}")
    return parsed(done.stdout.strip().splitlines()[0])
