"""Reads the output of an elastic job: its generations, and its steps."""

import dataclasses
import json
import re

_LINE = re.compile(r"generation (\d+): (\S+) \(data x tensor x pipeline\)(?: instead of (\S+))?"
                   r"(?: after step (\d+)| without a state)([^\n]*); agreed after (\S+) s, "
                   r"connected in (\S+) s, built after (\S+) s, has its state after (\S+) s, (\S+) ([kMG])B of state taken\n")


@dataclasses.dataclass
class Generation:
    """Rank 0's report when a generation begins. `connected` counts seconds from the agreement; the other times count
    from the end of the last generation."""

    number: int
    layout: str  # such as 2x1x4
    before: str  # layout of the last generation
    after: int  # step of its state; -1: no rank had a state
    why: str  # why the last generation ended; empty if it ended as planned, after a step
    agreed: float
    connected: float
    built: float
    state: float
    megabytes: float  # state sent between ranks

    @property
    def replicas(self):
        return int(self.layout.split("x")[0])

    @property
    def repeats(self):
        """The number of the step that ranks had begun and now repeat; 0: none."""
        found = re.search(r"; step (\d+) is done again", self.why)
        return int(found[1]) if found else 0

    @property
    def loses(self):
        """Whether no rank held some part of the state."""
        return "are lost" in self.why


def told(said):
    """The generations in the output whose lines are complete."""
    found = []
    for number, layout, before, after, why, *seconds, size, unit in _LINE.findall(said):
        found.append(Generation(int(number), layout, before or layout, int(after or -1), why, *map(float, seconds),
                                float(size) * {"k": 1e-3, "M": 1, "G": 1e3}[unit]))
    return found


def first_difference(found, wanted):
    """The first difference from the wanted curve, as "this instead of that"; None if there is none."""
    if len(found) != len(wanted):
        return f"{len(found)} steps instead of {len(wanted)}"
    return next((f"{is_} instead of {should}" for is_, should in zip(found, wanted) if is_ != should), None)


def curve(path, first=1):
    """The numbers of each step, in order. Every step from `first` on must be there once."""
    lines = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
    found = [line for line in lines if "loss" in line]
    assert [line["step"] for line in found] == list(range(first, first + len(found))), [line["step"] for line in found]
    return [json.dumps([line["step"], line["loss"], line["grad_norm"], line["lr"]]) for line in found]


def last_step(path):
    """The last step in the metrics, or 0."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2000))
        found = re.findall(rb'^{"step":(\d+),"loss".*\n', file.read(), re.MULTILINE)
    return int(found[-1]) if found else 0
