#!/usr/bin/env python3
"""compare.py DHP_COMPARE TRAIN_RESNET50: dhp_compare names the rank that others wait for, in made-up flight records,
and in the records that training ranks write on SIGUSR1 and at their end after one of them was stopped. For two runs, it
names the first step and tensor that differ, in metrics files and checkpoints of any layouts."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import ranks

LIMIT_S = 8
SUM = "all_reduce of 5 f32 (sum)"
MESSAGE = "message of 3 f32"


def call(key, what, start_s, end_s=None, needs=(), operation=None, failed=False, group=None):
    return {"key": key, "operation": operation or what.split()[0], "what": what,
            "group": key.split("#")[0].split(":")[0] if group is None else group, "where": "a.cpp:7", "bytes": 20,
            "start_s": start_s, "end_s": end_s, "failed": failed, "needs": list(needs)}


def done(key="world#1", what="barrier"):
    return call(key, what, 1, 1.5)


def waits(rank, since_s=5.8, size=4, key="world#2", what=SUM):
    return call(key, what, since_s, needs=[other for other in range(size) if other != rank])


def of_rank(rank, *calls, size=4):
    """A flight record, written at second 10."""
    entries = [{"number": number + 1, **each} for number, each in enumerate(calls)]
    return {"format": "dhp flight record 1", "rank": rank, "world_size": size, "name": f"host node{rank}, process 47{rank}",
            "written": "2026-03-01T12:00:00.250Z", "now_s": 10, "calls": len(calls), "entries": entries}


class Program:
    """Runs dhp_compare on files in a folder."""

    def __init__(self, program, root):
        self.program = program
        self.root = root
        self.names = itertools.count()

    def on(self, paths, *options):
        return subprocess.run([self.program, *map(str, paths), *options], capture_output=True, text=True, timeout=600,
                              check=False)

    def on_records(self, records, *options):
        paths = []
        for record in records:
            paths.append(self.root / f"made-up {next(self.names)}")
            paths[-1].write_text(record if isinstance(record, str) else json.dumps(record))
        return self.on(paths, *options)


SENTENCES = {
    "a rank has not come": (
        [of_rank(2, done()), *(of_rank(rank, done(), waits(rank)) for rank in (0, 1, 3))], 1,
        "rank 2 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which ranks 0, 1 and 3 "
        "have waited for 4.2 s; its last call was barrier at a.cpp:7, which ended 8.5 s before its file was written"),
    "a rank has left no file": (
        [of_rank(rank, done(), waits(rank)) for rank in (0, 1, 3)], 1,
        "rank 2 is not known to have come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which "
        "ranks 0, 1 and 3 have waited for 4.2 s; there is no file of rank 2"),
    "a file of another time": (
        [of_rank(0, waits(0, size=2), size=2), {**of_rank(1, done(), size=2), "written": "2026-02-28T23:59:30.000Z"}], 1,
        "ended 8.5 s before its file was written; that file is 43230 s older than the newest one"),
    "a rank of a smaller group": (
        [of_rank(1, call("world.2@1#3", SUM, 9, needs=[3])), of_rank(0, done()), of_rank(2, done()),
         of_rank(3, done("world.2@1#2", SUM))], 1,
        "rank 3 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world.2@1 (call 3), in which rank 1 has "
        "waited for 1.0 s; its last call was all_reduce of 5 f32 (sum) at a.cpp:7, which ended 8.5 s before"),
    "the end of a chain": (
        [of_rank(0, waits(0, 2)), of_rank(3, waits(3, 2)),
         of_rank(1, call("world:2>1#7", MESSAGE, 3, needs=[2], operation="recv")),
         of_rank(2, done("world:2>1#6", MESSAGE), call("world#2", SUM, 2, 2.5))], 1,
        "rank 2 has not come to recv of a message of 3 f32 at a.cpp:7 of group world (message 7 from rank 2 to rank 1), in "
        "which rank 1 has waited for 7.0 s; its last call was all_reduce"),
    "other calls": (
        [*(of_rank(rank, waits(rank)) for rank in (0, 1, 3)), of_rank(2, waits(2, what="barrier"))],
        1, "ranks do not agree in call 2 of group world: rank 0 is in all_reduce of 5 f32 (sum) at a.cpp:7, rank 2 in "
        "barrier at a.cpp:7"),
    "all have come": (
        [*(of_rank(rank, waits(rank)) for rank in (0, 1, 3)), of_rank(2, waits(2, 6))], 1,
        "all its ranks have come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which ranks 0, 1, 2 "
        "and 3 have waited for 4.2 s; rank 2 came last, 4.0 s ago"),
    "a circle": (
        [of_rank(0, call("world.2@0#1", SUM, 6, needs=[1]), size=2),
         of_rank(1, call("world.3@0#1", SUM, 7, needs=[0]), size=2)], 1,
        "ranks wait for each other: rank 0 has waited for 4.0 s in all_reduce of 5 f32 (sum) at a.cpp:7 of group world.2@0 "
        "(call 1) for rank 1, which waits elsewhere"),
    "the end of a run that failed": (
        [of_rank(0, done(), call("world#2", SUM, 2, 8, [1], failed=True), size=2), of_rank(1, done(), size=2)], 1,
        "rank 1 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which rank 0 has waited "
        "for 6.0 s"),
    "the store": (
        [of_rank(1, call("waiting#0", 'waiting for "nccl/id" in the store', 6, group=""), size=2), of_rank(0, size=2)], 1,
        'rank 1 has been waiting for "nccl/id" in the store for 4.0 s'),
    "nothing": ([of_rank(rank, done(), size=2) for rank in range(2)], 0, "nothing is under way"),
}
BAD = {
    "no JSON": (["nonsense"], "; dhp_compare reads files of --metrics, --trace-values and --flight-record"),
    "of two jobs": ([of_rank(0, size=2), of_rank(1, size=3)], " belongs to a job of 3 ranks, the other files to one of 2"),
    "twice": ([of_rank(0), of_rank(0)], " is a second file of rank 0; give one file of each rank"),
    "none": ([], "FILES is required"),
}


def check(good, *what):
    if not good:
        raise AssertionError("\n".join(map(str, what)))


def made_up(program):
    for name, (records, status, sentence) in SENTENCES.items():
        for order in (records, records[::-1]):
            ended = program.on_records(order)
            last = (ended.stdout.splitlines() or [""])[-1]
            check(ended.returncode == status and sentence in last, name, ended.returncode, ended.stdout, ended.stderr)
            check(all(len(line) <= 110 for line in ended.stdout.splitlines()[:-1]), name, ended.stdout)
    for name, (records, sentence) in BAD.items():
        ended = program.on_records(records)
        check(ended.returncode == 2 and sentence in ended.stderr and not ended.stdout, name, ended)
    ended = program.on([program.root / "nowhere"])
    check(ended.returncode == 2 and "nowhere: there is no such file or directory" in ended.stderr, ended)


def tables(program):
    """The tables of each rank's calls, and of all ranks side by side."""
    calls = [done(f"world#{number}", SUM) for number in range(1, 21)]
    long = waits(0, 5, 6, "world#21", "all_reduce of 123456789 f32 (" + "x" * 200 + ")")
    records = [of_rank(0, long, *calls, size=6)] + [of_rank(rank, *calls, size=6) for rank in (1, 2, 5)]
    shown = program.on_records(records, "--last", "3").stdout
    lines = shown.splitlines()
    check(lines[0] == "rank 0 of 6, host node0, process 470, written 2026-03-01T12:00:00.250Z, 21 calls", shown)
    check([line.split()[0] for line in lines[2:6]] == ["1", "19", "20", "21"], shown)
    check("> 5.0 s  world          21         all_reduce of 123456789 f32 (xxxxxx.. at a.cpp:7" in lines[2], shown)
    row = [line for line in lines if line.startswith("  world          21")]
    check(len(row) == 1 and row[0].split()[-4:] == ["0", "-", "1,2,5", "3,4"], shown)
    check(all(len(line) <= 110 for line in lines[:-1]), shown)
    shown = program.on_records(records[1:], "--last", "0").stdout
    check(len([line for line in shown.splitlines() if SUM in line]) == 0, shown)


def trained(root):
    lines = root.read_text().splitlines() if root.exists() else []
    return sum("loss" in json.loads(line) for line in lines)


def stopped(program, trainer, root):
    file = root / "flight.json"
    of = [root / f"flight.rank{rank}.json" for rank in range(4)]
    of[2].write_text("what an earlier run has left")
    metrics = root / "metrics"
    line = [trainer, "--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "100000",
            "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--data-parallel", "4",
            "--comm-timeout", str(LIMIT_S), "--flight-record", str(file), "--metrics", str(metrics)]
    with ranks.Job(4, line) as job:
        job.until(lambda: trained(metrics) >= 3)
        check(not any(path.exists() for path in of), "files before anybody has asked")
        # Writing records does not disturb a healthy run.
        for process in job.processes:
            process.send_signal(signal.SIGUSR1)
        job.until(lambda: all(path.exists() for path in of))
        steps = trained(metrics)
        job.until(lambda: trained(metrics) > steps)
        of[2].unlink()

        job.processes[2].send_signal(signal.SIGSTOP)
        time.sleep(1)
        before = {path: path.stat().st_mtime_ns for path in of if path.exists()}
        check(len(before) == 3, "rank 2 is stopped and writes")
        for rank in (0, 1, 3):
            job.processes[rank].send_signal(signal.SIGUSR1)
        job.until(lambda: all(path.stat().st_mtime_ns != then for path, then in before.items()))
        check(not job.poll(), "a rank has ended before its time")
        hanging = program.on([of[rank] for rank in (0, 1, 3)], "--last", "2")
        print(hanging.stdout, flush=True)
        last = hanging.stdout.splitlines()[-1]
        check(hanging.returncode == 1 and last.startswith("rank 2 is not known to have come to "), hanging.stdout,
              hanging.stderr)
        check(last.endswith("there is no file of rank 2"), last)

        job.wait(300, without=[2])
        os.kill(job.processes[2].pid, signal.SIGCONT)
        ends = job.wait(300)
        check(all(end.status == 1 for end in ends), ends)
        check(all("rank 2 (host" in ends[rank].output for rank in (0, 1, 3)), ends)
    # A run that failed has also written flight records at its end.
    ended = program.on(of)
    last = ended.stdout.splitlines()[-1]
    check(ended.returncode == 1 and "x " in ended.stdout, ended.stdout, ended.stderr)
    print(last, flush=True)


def good_end(program, trainer, root):
    file = root / "good"
    line = [trainer, "--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "2",
            "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--pipeline-parallel", "2",
            "--flight-record", str(file)]
    ranks.run(2, line)
    ended = program.on([root / "good.rank0", root / "good.rank1"])
    check(ended.returncode == 0 and ended.stdout.endswith("nothing is under way\n"), ended)
    file.with_name("good.rank0").unlink()
    subprocess.run(line, capture_output=True, text=True, timeout=600, check=True)  # both ranks are threads
    ended = program.on([root / "good.rank0", root / "good.rank1"])
    check(ended.returncode == 0 and ended.stdout.endswith("nothing is under way\n"), ended)
    check("rank 1 of 2" in ended.stdout and "all_reduce of" in ended.stdout and "recv of a message" in ended.stdout, ended)
    in_file = root / "good.rank0" / "folder" / "x"
    refused = subprocess.run([*line[:-1], str(in_file), "--rank", "1", "--world-size", "2", "--master", "127.0.0.1"],
                             capture_output=True, text=True, timeout=600, check=False)
    check(refused.returncode == 1 and f"cannot write --flight-record {in_file}.rank1: Not a directory" in refused.stderr, refused)


def runs(program, trainer, root):
    def train(name, *options):
        line = [trainer, "--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "4", "--save-every",
                "2", "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--deterministic", "--precision", "fp64",
                *options]
        subprocess.run([*line, "--save", str(root / name), "--metrics", str(root / f"{name}.jsonl")], capture_output=True,
                       text=True, timeout=600, check=True)

    def compared(a, b, status, *said):
        done = program.on([root / a, root / b])
        check(done.returncode == status and all(text in done.stdout for text in said), a, b, done.stdout, done.stderr)

    train("plain")
    train("other layout", "--data-parallel", "2", "--pipeline-parallel", "2", "--zero", "1")
    train("split", "--tensor-parallel", "2", "--tensor-groups", "2")
    train("groups", "--tensor-parallel", "2")
    train("seed", "--seed", "2")
    train("later", "--load", str(root / "plain" / "step-00000002"), "--lr", "0.01", "--lr-decay", "constant")
    for name in ("other layout", "groups", "plain"):
        compared("plain.jsonl", f"{name}.jsonl", 0, "all values that both files have are the same, to the last bit")
        compared("plain", name, 0, "step-00000004", "tensors are the same, to the last bit")
    compared("plain.jsonl", "split.jsonl", 1, "as little as rounding makes")
    compared("plain", "split", 1, "step-00000002", "layout/tensor: A has 1, B has 2", "as little as rounding makes")
    compared("plain.jsonl", "seed.jsonl", 1, "they differ first in step 0, in held_out_", "from the first step on: another model")
    compared("plain", "seed", 1, "run/options/--seed: A has nothing, B has [\"2\"]", "more than rounding makes")
    compared("plain.jsonl", "later.jsonl", 1, "they differ first in step 3, in lr", "another learning rate")
    compared("plain/step-00000002", "plain", 0)  # compares the step that both have
    compared("plain/step-00000002", "plain/step-00000004", 1, "steps: A has 2, B has 4")
    shard = next((root / "seed" / "step-00000002").glob("shard-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    damaged = program.on([root / "plain", root / "seed"])
    check(damaged.returncode == 2 and damaged.stderr.startswith("error: "), damaged)
    for paths, why in (((root / "plain", root), "is neither a checkpoint nor a folder of checkpoints"),
                       ((root / "plain.jsonl", root / "plain.jsonl", root / "seed.jsonl"), "two runs are compared, got 3")):
        refused = program.on(paths)
        check(refused.returncode == 2 and why in refused.stderr, refused)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        program = Program(sys.argv[1], root)
        made_up(program)
        tables(program)
        stopped(program, sys.argv[2], root)
        good_end(program, sys.argv[2], root)
        runs(program, sys.argv[2], root)


if __name__ == "__main__":
    main()
