"""Parts of the time without a step when an elastic job loses a rank. Importers need tests/processes in their path."""

import json
import time

from generations import told


class Steps:
    """Reads a growing metrics file."""

    def __init__(self, path):
        self.path, self.at, self.last = path, 0, 0
        self.losses = []  # (step, loss) of each line

    def now(self):
        """Returns the last step in the file. A new generation may truncate the file before it continues."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self.at:
            with self.path.open() as file:
                file.seek(max(self.at - 1, 0))
                if self.at and file.read(1) != "\n":
                    self.at, self.losses = 0, []
                    file.seek(0)
                text = file.read()
            text = text[:text.rfind("\n") + 1]
            self.at += len(text)
            for line in map(json.loads, text.splitlines()):
                if "loss" in line:
                    self.last = line["step"]
                    self.losses.append((line["step"], line["loss"]))
        return self.last

    def wait_for(self, step, limit_s=300):
        begin = time.monotonic()
        while self.now() < step:
            if time.monotonic() - begin > limit_s:
                raise AssertionError(f"no step {step} within {limit_s} s")
            time.sleep(0.0005)


PARTS = ("noticed", "agreed", "connected", "built", "state", "step")  # parts of the time without a step


def next_generation(job, number):
    """Waits for the message of a generation after `number`; returns that generation and when its message came."""
    begin = time.monotonic()
    while True:
        found = told(job.output(0))
        if found and found[-1].number > number:
            return found[-1], time.monotonic()
        assert time.monotonic() - begin < 300, job.output(0)
        time.sleep(0.0005)


def parts_of(generation, begin, came):
    """Returns the parts of the time from a kill or signal at `begin` to the next generation's message."""
    return dict(noticed=came - begin - generation.state, agreed=generation.agreed, connected=generation.connected,
                built=generation.built - generation.agreed - generation.connected, state=generation.state - generation.built)
