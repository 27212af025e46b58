"""What the pictures share: reading the virtual GPU's traces (common/vgpu/README.md, Traces)."""
import json
import re

from results import Refused


def read(file_name):
    with open(file_name, encoding="utf-8") as file:
        return json.load(file)


def title(trace):
    """The kernel's name; for an attention_kernel that of its chapter, since all are called that."""
    *spaces, name = re.sub(r"<.*", "", trace["kernel"]).split("::")
    return spaces[-1].replace("_", " ") if name == "attention_kernel" and spaces else name


def picked(trace, wanted, argument, number):
    """Access `number` (from 0) of those for which wanted(access); refuses in terms of the argument."""
    found = [access for access in trace["accesses"] if wanted(access)]
    if number >= len(found):
        raise Refused(f"'{argument}': the trace has {len(found)} such accesses")
    return found[number]
