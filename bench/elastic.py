"""What the loss of a rank costs: an elastic job that goes on, and a job that is started again from its newest checkpoint.

elastic.py TRAIN_BERT [--kills N] [--restarts N] [--torchrun PYTHON] [--preset NAME] [--json FILE]: BERT-tiny on four processes over Gloo. A random rank is killed;
the time from there to the end of the next step of the others is taken, and its parts: until the loss is noticed, until a new
generation is agreed on, connected, has its training built and its state, and until its first step is done. Then another process
takes the place of the one that was killed. In turns with it the same job without --elastic, which saves after each step, is
killed in the same way and started anew with --load, and so is a model of the same size by PyTorch's torchrun, which
starts all workers again by itself (peer_elastic.py; --torchrun names its Python).
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "processes"))
import ranks  # noqa: E402

RANKS = 4
RUN = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--samples", "256", "--global-batch", "16",
       "--micro-batch", "2", "--held-out", "0", "--steps", "1000000"]
PARTS = ("noticed", "agreed", "connected", "built", "state", "step")
GENERATION = re.compile(r"generation (\d+): (\d+)x1x1 .* after step (\d+).*agreed after (\S+) s, connected in (\S+) s, built after "
                        r"(\S+) s, has its state after (\S+) s\n")


class Steps:
    """Reads a growing metrics file."""

    def __init__(self, path):
        self.path, self.at, self.last = path, 0, 0

    def now(self):
        if self.path.exists() and self.path.stat().st_size > self.at:
            with self.path.open() as file:
                file.seek(self.at)
                text = file.read()
            text = text[:text.rfind("\n") + 1]
            self.at += len(text)
            for line in text.splitlines():
                self.last = json.loads(line)["step"]
        return self.last

    def wait_for(self, step, limit_s=60):
        begin = time.monotonic()
        while self.now() < step:
            if time.monotonic() - begin > limit_s:
                raise AssertionError(f"no step {step} within {limit_s} s")
            time.sleep(0.0005)


def last_generation(job, number):
    """Waits for the message of a generation after this one."""
    begin = time.monotonic()
    while True:
        found = GENERATION.findall(job.output(0))
        if found and int(found[-1][0]) > number:
            return [float(value) for value in found[-1]], time.monotonic()
        assert time.monotonic() - begin < 60, job.output(0)
        time.sleep(0.0005)


def elastic(program, folder, kills):
    metrics = folder / "elastic.json"
    metrics.unlink(missing_ok=True)
    command = [program, *RUN, "--elastic", "1:4", "--metrics", str(metrics)]
    rows, number = [], 1
    with ranks.Job(RANKS, command) as job:
        steps = Steps(metrics)
        steps.wait_for(20)
        alive = {rank: job.processes[rank] for rank in range(1, RANKS)}
        for _ in range(kills):
            steps.wait_for(steps.now() + 10)
            time.sleep(random.uniform(0, 0.1))
            rank = random.choice(sorted(alive))
            begin = time.monotonic()
            alive[rank].kill()
            (number, _, after, agreed, connected, built, state), told = last_generation(job, number)
            steps.wait_for(after + 1)
            end = time.monotonic()
            noticed = told - begin - state
            rows.append(dict(total=end - begin, noticed=noticed, agreed=agreed, connected=connected,
                             built=built - agreed - connected, state=state - built, step=end - told))
            alive[rank] = job.add(rank)
            (number, *_), _ = last_generation(job, number)
    return rows


def restarted(program, folder, restarts):
    """Seconds from the kill to the end of the first step that had not been done before."""
    metrics, save = folder / "restarted.json", folder / "save"
    command = [program, *RUN, "--data-parallel", str(RANKS), "--transport", "gloo", "--metrics", str(metrics), "--save", str(save),
               "--save-every", "1", "--keep", "2"]
    seconds = []
    job = ranks.Job(RANKS, command)
    try:
        for _ in range(restarts):
            steps = Steps(metrics)
            steps.wait_for(steps.now() + 20)
            begin = time.monotonic()
            random.choice(job.processes[1:]).kill()
            job.wait(60 + begin - job.start)
            done = steps.now()
            job.__exit__()
            job = ranks.Job(RANKS, [*command, "--load", str(save)])
            steps = Steps(metrics)
            while steps.now() <= done:  # the file is cut, and written again
                if metrics.stat().st_size < steps.at:
                    steps = Steps(metrics)
                time.sleep(0.001)
            seconds.append(time.monotonic() - begin)
    finally:
        job.__exit__()
    return seconds


def by_torchrun(python, folder, restarts):
    """The same of a job that torchrun starts again: workers are found as its children."""
    metrics, snapshot = folder / "torch.json", folder / "torch.pt"
    peer = pathlib.Path(__file__).resolve().parent / "peer_elastic.py"
    line = [python, "-m", "torch.distributed.run", "--nproc_per_node", str(RANKS), "--max_restarts", "1000", "--monitor_interval",
            "0.1", "--master_port", str(ranks.free_port()), str(peer), str(metrics), str(snapshot)]
    seconds = []
    with tempfile.TemporaryFile() as said:
        job = subprocess.Popen(line, stdout=said, stderr=said, start_new_session=True)
        try:
            steps = Steps(metrics)
            for _ in range(restarts):
                steps.wait_for(steps.now() + 20, 120)
                children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
                begin = time.monotonic()
                os.kill(int(children[-1]), signal.SIGKILL)
                time.sleep(0.05)  # what the others had begun
                steps.wait_for(steps.now() + 1, 120)
                seconds.append(time.monotonic() - begin)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="train_bert")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--torchrun", help="a Python with PyTorch")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    RUN[1] = arguments.preset
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        half = arguments.kills // 2
        rows = elastic(arguments.program, folder, half)
        seconds = restarted(arguments.program, folder, arguments.restarts)
        torch = by_torchrun(arguments.torchrun, folder, arguments.restarts) if arguments.torchrun else []
        rows += elastic(arguments.program, folder, arguments.kills - half)
    middle = statistics.median(row["total"] for row in rows)
    print("elastic: %d kills, to the end of the next step %.3f s (median; %.3f to %.3f)" % (
        len(rows), middle, min(row["total"] for row in rows), max(row["total"] for row in rows)))
    for part in PARTS:
        print("  %-10s %.3f s" % (part, statistics.median(row[part] for row in rows)))
    again = statistics.median(seconds)
    print("started again from the disk: %d kills, %.3f s (median): %.1f times as long" % (len(seconds), again, again / middle))
    if torch:
        print("started again by torchrun: %d kills, %.3f s (median): %.1f times as long" % (
            len(torch), statistics.median(torch), statistics.median(torch) / middle))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(
            json.dumps(dict(elastic=rows, restarted=seconds, torchrun=torch), indent=1) + "\n")


if __name__ == "__main__":
    main()
