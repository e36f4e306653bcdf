#!/usr/bin/env python3
"""kills.py TRAIN_BERT [--kills N] [--seed N]: runs that save after each step are killed at random moments, N times in
all. Each start has a random layout and ZeRO stage, with ranks as threads or processes, of which one or all are killed.
Each goes on from the latest checkpoint, and ends with the numbers and the weights of an undisturbed run."""

import argparse
import collections
import json
import pathlib
import random
import signal
import tempfile
import time

import ranks

STEPS = 12
RUN = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--samples", "256", "--global-batch", "16",
       "--micro-batch", "4", "--deterministic", "--steps", str(STEPS), "--evaluate-samples", "4", "--save-every", "1",
       "--keep", "2"]
LAYOUTS = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]  # (data, pipeline); all give the same bits


def started(program, folder, layout, stage, processes):
    data, pipeline = layout
    line = [program, *RUN, "--data-parallel", str(data), "--pipeline-parallel", str(pipeline), "--zero", str(stage), "--resume",
            str(folder / "save"), "--metrics", str(folder / "metrics"), "--export", str(folder / "weights")]
    count = data * pipeline if processes else 1
    return ranks.Job(count, [*line, "--transport", "gloo"] if count > 1 else line)


def curve(folder):
    """The numbers of each step that do not depend on the layout. A repeated or missing step is an error."""
    lines = [json.loads(text) for text in (folder / "metrics").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1)), [step["step"] for step in steps]
    # A run that is killed after its last save has no summary.
    assert [line["step"] for line in lines if "summary" in line] in ([], [STEPS]), lines[-1]
    marks = [(line["step"], "loss" not in line) for line in lines if "summary" not in line]
    assert marks == sorted(set(marks)), marks
    return [json.dumps({key: step[key] for key in step if key not in ("samples_per_s", "token_rows", "peak_memory_bytes")}) for step in steps]


def latest(folder):
    path = folder / "save" / "latest"
    return path.read_text().strip() if path.exists() else ""


def unfinished(folder):
    """The unfinished saves."""
    return {(path.name, path.stat().st_mtime_ns) for path in (folder / "save").glob("step-*.*")}


def killed(job, rng, whole):
    """Kills one or all processes of the job. Returns whether a process was still there to be killed."""
    time.sleep(rng.uniform(0.2, whole))
    if job.poll():
        job.wait(300)
        return False
    one = rng.random() < 0.5 and "layout" in job.output(0)  # before that, the others would wait long
    for process in [rng.choice(job.processes)] if one else job.processes:
        process.send_signal(signal.SIGKILL)
    try:
        ends = job.wait(time.monotonic() - job.start + 20)  # the others end by themselves
    except AssertionError:  # before the first step the limits are minutes
        for process in job.processes:
            process.kill()
        ends = job.wait(300)
    return any(end.status == -signal.SIGKILL for end in ends)


def until_done(program, folder, rng, seconds, budget, seen):
    """Starts a run again until it is done. Returns how often it was killed, at most `budget` times."""
    kills, done = 0, False
    while not done:
        before, parts = latest(folder), unfinished(folder)
        layout, stage, processes = rng.choice(LAYOUTS), rng.randrange(4), rng.random() < 0.4
        with started(program, folder, layout, stage, processes) as job:
            if kills < budget and killed(job, rng, seconds):
                kills += 1
                seen["in a save"] += unfinished(folder) != parts
                seen["of processes"] += processes
            else:
                ends = job.wait(600)
                assert all(end.status == 0 for end in ends), [end.output for end in ends]
            said = job.output(0)
        if before and "evaluation at the start" in said:
            assert f"loaded {folder / 'save' / before}: goes on after step {int(before[5:])}" in said, (before, said)
        expected = [f"{name} is a save that was not finished" for name, time in parts
                    if name.endswith(".part") and "loaded " in said]
        ended = job.ended[0].status
        if ended > 0 and unfinished(folder) - parts:  # rank 0 has seen another rank end
            expected.append(" is incomplete, since ranks ended or changed meanwhile")
            seen["interruptions said"] += 1
        found = [line for line in said.splitlines() if line.startswith("warning: ")]
        said_all = all(any(text in line for line in found) for text in expected)
        assert len(found) <= len(expected) and (ended < 0 or said_all or "evaluation at" not in said), (expected, ended, said)
        seen["starts"] += 1
        seen[f"ZeRO {stage}"] += 1
        done = latest(folder) == f"step-{STEPS:08}"
    return kills


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    seen = collections.Counter()
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        (root / "straight").mkdir()
        begin = time.monotonic()
        assert until_done(asked.program, root / "straight", rng, 1, 0, collections.Counter()) == 0
        seconds = time.monotonic() - begin
        straight, weights = curve(root / "straight"), (root / "straight" / "weights" / "model.safetensors").read_bytes()
        kills = runs = 0
        while kills < asked.kills:
            folder = root / str(runs)
            folder.mkdir()
            kills += until_done(asked.program, folder, rng, seconds, asked.kills - kills, seen)
            assert curve(folder) == straight, (curve(folder), straight)
            exported = folder / "weights" / "model.safetensors"  # missing if the run was killed before the export
            if exported.exists():
                assert exported.read_bytes() == weights
                seen["weights compared"] += 1
            runs += 1
            print(f"{kills} kills", flush=True)
    print(f"seed {asked.seed}: {kills} kills of {runs} runs, all with the curve of the straight one; {dict(seen)}")


if __name__ == "__main__":
    main()
