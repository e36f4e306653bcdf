#!/usr/bin/env python3
"""ledger.py DHP_LEDGER TRAIN_RESNET50: dhp_ledger names who is waited for, in made-up ledgers, and in those of four ranks
that train until one of them is stopped, which the others are asked for by SIGUSR1 and write once more at their end."""

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


def call(key, what, start_s, end_s=None, waits_for=(), operation=None, failed=False):
    return {"key": key, "operation": operation or what.split()[0], "what": what, "group": key.split("#")[0].split(":")[0],
            "where": "a.cpp:7", "bytes": 20, "start_s": start_s, "end_s": end_s, "failed": failed,
            "waits_for": list(waits_for)}


def done(key="0@0#1", what="barrier"):
    return call(key, what, 1, 1.5)


def of_rank(rank, *calls, size=4, groups=None):
    """A ledger that is written at second 10."""
    entries = [{"number": number + 1, **each} for number, each in enumerate(calls)]
    return {"format": "dhp ledger 1", "rank": rank, "world_size": size, "name": f"host node{rank}, process 47{rank}",
            "written": "2026-03-01T12:00:00.250Z", "opened": "2026-03-01T11:59:50.250Z", "now_s": 10, "calls": len(calls),
            "groups": groups or {}, "entries": entries}


class Program:
    """dhp_ledger on files in a folder of its own."""

    def __init__(self, program, root):
        self.program = program
        self.root = root
        self.names = itertools.count()

    def on(self, paths, *options):
        return subprocess.run([self.program, *map(str, paths), *options], capture_output=True, text=True, timeout=60,
                              check=False)

    def on_ledgers(self, ledgers, *options):
        paths = []
        for ledger in ledgers:
            paths.append(self.root / f"made-up {next(self.names)}")
            paths[-1].write_text(ledger if isinstance(ledger, str) else json.dumps(ledger))
        return self.on(paths, *options)


WAITS = call("0@0#2", SUM, 5.8, waits_for=[2])
SENTENCES = {
    "a rank has not come": (
        [of_rank(0, done(), WAITS), of_rank(1, done(), WAITS), of_rank(2, done()), of_rank(3, done(), WAITS)], 1,
        "rank 2 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which ranks 0, 1 and 3 "
        "have waited for 4.2 s; its last call was barrier at a.cpp:7, which ended 8.5 s before its file was written"),
    "a rank has called nothing": (
        [of_rank(0, WAITS, size=3), of_rank(1, WAITS, size=3), of_rank(2, size=3)], 1,
        "have waited for 4.2 s; it has called nothing yet"),
    "a rank has left no file": (
        [of_rank(rank, done(), WAITS) for rank in (0, 1, 3)], 1,
        "rank 2 is not known to have come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which "
        "ranks 0, 1 and 3 have waited for 4.2 s; there is no file of rank 2"),
    "some ranks have not come, and some have left no file": (
        [of_rank(0, WAITS, size=6), of_rank(1, size=6), of_rank(3, size=6)], 1,
        "ranks 1 and 3 have not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which rank 0 has "
        "waited for 4.2 s; there is no file of ranks 2, 4 and 5"),
    "a file of another time": (
        [of_rank(0, call("0@0#2", SUM, 5.8), size=2), {**of_rank(1, done(), size=2), "written": "2026-02-28T23:59:30.000Z"}], 1,
        "ended 8.5 s before its file was written; that file is 43230 s older than the newest one"),
    "a rank of a smaller group": (
        [of_rank(1, call("2@1#3", SUM, 9, waits_for=[3]), groups={"2@1": [1, 3]}), of_rank(0, done()),
         of_rank(2, done()), of_rank(3, done("2@1#2", SUM))], 1,
        "rank 3 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group 2@1 (call 3), in which rank 1 has waited "
        "for 1.0 s; its last call was all_reduce of 5 f32 (sum) at a.cpp:7, which ended 8.5 s before"),
    "the end of a chain": (
        [of_rank(0, call("0@0#2", SUM, 2, waits_for=[1])), of_rank(3, call("0@0#2", SUM, 2, waits_for=[1])),
         of_rank(1, call("0@0:2>1#7", MESSAGE, 3, waits_for=[2], operation="recv")),
         of_rank(2, done("0@0:2>1#6", MESSAGE), call("0@0#2", SUM, 2, 2.5))], 1,
        "rank 2 has not come to recv of a message of 3 f32 at a.cpp:7 of group world (message 7 from rank 2 to rank 1), in "
        "which rank 1 has waited for 7.0 s; its last call was all_reduce"),
    "other calls": (
        [of_rank(0, WAITS), of_rank(1, WAITS), of_rank(2, call("0@0#2", "barrier", 6, waits_for=[0])), of_rank(3, WAITS)],
        1, "ranks do not agree in call 2 of group world: rank 0 is in all_reduce of 5 f32 (sum) at a.cpp:7, rank 2 in "
        "barrier at a.cpp:7"),
    "all have come": (
        [of_rank(0, WAITS), of_rank(1, done("0@0#2", SUM)), of_rank(2, call("0@0#2", SUM, 6)), of_rank(3, WAITS)], 1,
        "rank 0 has waited for 4.2 s in all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2) for rank 2, which is "
        "in it for 4.0 s; what that one has sent has not arrived"),
    "all have come, one of them late": (
        [of_rank(0, WAITS), of_rank(1, WAITS), of_rank(2, call("0@0#2", SUM, 9.9)), of_rank(3, WAITS)], 1,
        "rank 0 has waited for 4.2 s in all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2) for rank 2, which is "
        "in it for 100 ms"),
    "one has ended it": (
        [of_rank(0, WAITS), of_rank(1, WAITS), of_rank(2, done("0@0#3")), of_rank(3, WAITS)], 1,
        "for rank 2, which has ended it; what that one has sent has not arrived"),
    "a circle": (
        [of_rank(0, call("2@0#1", SUM, 6, waits_for=[1]), size=2, groups={"2@0": [0, 1]}),
         of_rank(1, call("3@0#1", SUM, 7, waits_for=[0]), size=2, groups={"3@0": [0, 1]})], 1,
        "ranks wait for each other: rank 0 has waited for 4.0 s in all_reduce of 5 f32 (sum) at a.cpp:7 of group 2@0 "
        "(call 1) for rank 1, which waits elsewhere"),
    "the end of a run that failed": (
        [of_rank(0, done(), call("0@0#2", SUM, 2, 8, [1], failed=True), size=2), of_rank(1, done(), size=2)], 1,
        "rank 1 has not come to all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 2), in which rank 0 has waited "
        "for 6.0 s"),
    "the store": (
        [of_rank(1, call("store:nccl/id#1", 'waiting for "nccl/id" in the store', 6), size=2), of_rank(0, size=2)], 1,
        'rank 1 has been waiting for "nccl/id" in the store for 4.0 s'),
    "nothing": ([of_rank(rank, done(), size=2) for rank in range(2)], 0, "nothing is under way"),
    "a message that nobody has received yet": (
        [of_rank(0, call("0@0:0>1#1", MESSAGE, 2, operation="send"), size=2), of_rank(1, size=2)], 0,
        "nothing is under way"),
}
BAD = {
    "no JSON": (["nonsense"], " is no ledger: it is no JSON"),
    "of two jobs": ([of_rank(0, size=2), of_rank(1, size=3)], " is of a job of 3 ranks, the others of one of 2"),
    "twice": ([of_rank(0), of_rank(0)], " is one more of rank 0; give one of each rank"),
    "none": ([], "FILES is required"),
}


def check(good, *what):
    if not good:
        raise AssertionError("\n".join(map(str, what)))


def made_up(program):
    for name, (ledgers, status, sentence) in SENTENCES.items():
        for order in (ledgers, ledgers[::-1]):
            ended = program.on_ledgers(order)
            last = (ended.stdout.splitlines() or [""])[-1]
            check(ended.returncode == status and sentence in last and ("arrived" in last) == ("arrived" in sentence), name, ended.returncode, ended.stdout, ended.stderr)
            check(all(len(line) <= 110 for line in ended.stdout.splitlines()[:-1]), name, ended.stdout)
    for name, (ledgers, sentence) in BAD.items():
        ended = program.on_ledgers(ledgers)
        check(ended.returncode == 2 and sentence in ended.stderr and not ended.stdout, name, ended)
    ended = program.on([program.root / "nowhere"])
    check(ended.returncode == 2 and "nowhere: No such file or directory" in ended.stderr, ended)


def tables(program):
    """What is shown of each rank, and side by side."""
    calls = [done(f"0@0#{number}", SUM) for number in range(1, 21)]
    long = call("0@0#21", "all_reduce of 123456789 f32 (" + "x" * 200 + ")", 5, waits_for=[1, 2, 3, 5])
    ledgers = [of_rank(0, long, *calls, size=6)] + [of_rank(rank, *calls, size=6) for rank in (1, 2, 5)]
    shown = program.on_ledgers(ledgers, "--last", "3").stdout
    lines = shown.splitlines()
    check(lines[0] == "rank 0 of 6, host node0, process 470, written 2026-03-01T12:00:00.250Z, 21 calls", shown)
    check([line.split()[0] for line in lines[2:6]] == ["1", "19", "20", "21"], shown)
    check("> 5.0 s  world   21         waits for 1-3,5: all_reduce of 123456789 f.. at a.cpp:7" in lines[2], shown)
    row = [line for line in lines if line.startswith("  world   21")]
    check(len(row) == 1 and row[0].split()[-4:] == ["0", "-", "1,2,5", "3,4"], shown)
    check(all(len(line) <= 110 for line in lines[:-1]), shown)
    shown = program.on_ledgers(ledgers[1:], "--last", "0").stdout
    check(len([line for line in shown.splitlines() if SUM in line]) == 0, shown)


def trained(root):
    lines = root.read_text().splitlines() if root.exists() else []
    return sum("loss" in json.loads(line) for line in lines)


def wait_until(job, what, condition):
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > 60:
            raise AssertionError(f"{what}: " + "\n".join(job.output(rank) for rank in range(4)))
        time.sleep(0.01)


def stopped(program, trainer, root):
    file = root / "ledger.json"
    of = [root / f"ledger.rank{rank}.json" for rank in range(4)]
    of[2].write_text("what an earlier run has left")
    metrics = root / "metrics"
    line = [trainer, "--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "100000",
            "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--data-parallel", "4",
            "--comm-timeout", str(LIMIT_S), "--ledger", str(file), "--metrics", str(metrics)]
    with ranks.Job(4, line) as job:
        wait_until(job, "it does not train", lambda: trained(metrics) >= 3)
        check(not any(path.exists() for path in of), "files before anybody has asked")
        # While all is well: nobody notices.
        for process in job.processes:
            process.send_signal(signal.SIGUSR1)
        wait_until(job, "no files", lambda: all(path.exists() for path in of))
        steps = trained(metrics)
        wait_until(job, "it does not go on", lambda: trained(metrics) > steps)
        of[2].unlink()

        job.processes[2].send_signal(signal.SIGSTOP)
        time.sleep(1)
        before = {path: path.stat().st_mtime_ns for path in of if path.exists()}
        check(len(before) == 3, "rank 2 is stopped and writes")
        for rank in (0, 1, 3):
            job.processes[rank].send_signal(signal.SIGUSR1)
        wait_until(job, "no new files",
                   lambda: all(path.stat().st_mtime_ns != then for path, then in before.items()))
        check(not job.poll(), "a rank has ended before its time")
        hanging = program.on([of[rank] for rank in (0, 1, 3)], "--last", "2")
        print(hanging.stdout, flush=True)
        last = hanging.stdout.splitlines()[-1]
        check(hanging.returncode == 1 and last.startswith("rank 2 is not known to have come to "), hanging.stdout,
              hanging.stderr)
        check(last.endswith("there is no file of rank 2"), last)

        job.wait(60, without=[2])
        os.kill(job.processes[2].pid, signal.SIGCONT)
        ends = job.wait(60)
        check(all(end.status == 1 for end in ends), ends)
        check(all("rank 2 (host" in ends[rank].output for rank in (0, 1, 3)), ends)
    # At the end of a run that failed, the ledgers are written, too.
    ended = program.on(of)
    last = ended.stdout.splitlines()[-1]
    check(ended.returncode == 1 and "x " in ended.stdout, ended.stdout, ended.stderr)
    print(last, flush=True)


def good_end(program, trainer, root):
    file = root / "good"
    line = [trainer, "--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "2",
            "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--pipeline-parallel", "2",
            "--ledger", str(file)]
    ranks.run(2, line)
    ended = program.on([root / "good.rank0", root / "good.rank1"])
    check(ended.returncode == 0 and ended.stdout.endswith("nothing is under way\n"), ended)
    file.with_name("good.rank0").unlink()
    subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)  # both ranks are threads
    ended = program.on([root / "good.rank0", root / "good.rank1"])
    check(ended.returncode == 0 and ended.stdout.endswith("nothing is under way\n"), ended)
    check("rank 1 of 2" in ended.stdout and "all_reduce of" in ended.stdout and "recv of a message" in ended.stdout, ended)
    in_file = root / "good.rank0" / "folder" / "x"
    refused = subprocess.run([*line[:-1], str(in_file), "--rank", "1", "--world-size", "2", "--master", "127.0.0.1"],
                             capture_output=True, text=True, timeout=60, check=False)
    check(refused.returncode == 1 and f"cannot write --ledger {in_file}.rank1: Not a directory" in refused.stderr, refused)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        program = Program(sys.argv[1], root)
        made_up(program)
        tables(program)
        stopped(program, sys.argv[2], root)
        good_end(program, sys.argv[2], root)


if __name__ == "__main__":
    main()
