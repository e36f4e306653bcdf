#!/usr/bin/env python3
"""starts.py TRAIN_BERT: ranks with different options or different data soon end, all with the same error. Options that
may differ between hosts are accepted. A newcomer with other options does not disturb an elastic job."""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import ranks

BERT = ["--sequence-length", "16", "--vocabulary-size", "60", "--samples", "40", "--evaluate-samples", "4",
        "--steps"]
HANG_S = 300  # only a hang lasts this long
D2, P2 = ["--data-parallel", "2"], ["--pipeline-parallel", "2"]
TEXT = [*D2, "--sentences", "lines", "--data"]
SAME = "; start all ranks with the same options and one build of the program"

# The options of each rank, and the error of all ranks; None if they train.
TABLE = [
    ((D2, [*D2, "--lr", "0.5"]), "rank 1 started with --lr 0.5, and rank 0 with --lr 0.001" + SAME),
    ((D2, [*D2, "--micro-batch", "2", "--seed", "7"]),
     "rank 1 started with --micro-batch 2, --seed 7, and rank 0 with --micro-batch 8, --seed 0" + SAME),
    ((D2, P2), "rank 1 started with --data-parallel 1, --pipeline-parallel 2, and rank 0 with --data-parallel 2, "
     "--pipeline-parallel 1" + SAME),
    ((D2, []), "rank 1 started with --data-parallel 1, and rank 0 with --data-parallel 2" + SAME),
    (([], D2), "rank 1 started with --data-parallel 2, and rank 0 with --data-parallel 1" + SAME),
    (([], []), "there are 2 processes (RANK and WORLD_SIZE), but a layout of 1x1x1"),
    ((P2, [*P2, "--deterministic"]), "rank 1 started with --deterministic, and rank 0 with no --deterministic" + SAME),
    (([*D2, "--save", "s", "--save-every", "2"], [*D2, "--save", "s"]), "rank 1 started with --save-every 0, and rank 0 with"),
    ((D2, [*D2, "--load", "saved"]), "rank 1 started with --load saved, and rank 0 with no --load" + SAME),
    ((D2, [*D2, "--trace", "t"]), "rank 1 started with --trace PATH, and rank 0 with no --trace" + SAME),
    ((D2, [*D2, "--lr", "much"]), "rank 1: its command line is wrong; see what that rank printed"),
    ((["--data-parallel", "3"], ["--data-parallel", "3", "--precision", "bf16"], ["--data-parallel", "3"]),
     "rank 1 started with --precision bf16, and rank 0 with --precision fp32" + SAME),
    (([*TEXT, "a.txt"], [*TEXT, "b.txt"]), "rank 1 read data with 40 training samples of checksum "),
    (([*TEXT, "a.txt"], [*TEXT, "short.txt"]), "rank 1 read data with 10 training samples of checksum "),
    (([*TEXT, "a.txt"], [*TEXT, "missing.txt"]), "--data missing.txt: there is no such file or directory"),
    (([*TEXT, "a.txt", "--vocabulary", "v1.txt"], [*TEXT, "a.txt", "--vocabulary", "v2.txt"]), " a vocab.txt of checksum "),
    (([*TEXT, "a.txt"], [*TEXT, "copy.txt", "--lr", "1e-3", "--metrics", "m", "--threads", "2"]), None),
]


def write_texts():
    words = "the cat sat on a mat and dog ran to red house by sea where some old men live with their good friends".split()
    for seed, name, lines in ((1, "a.txt", 300), (2, "b.txt", 300), (1, "short.txt", 25)):
        choice = random.Random(seed).choice
        pathlib.Path(name).write_text("".join(" ".join(choice(words) for _ in range(8)) + "\n" + "\n" * (at % 6 == 5)
                                              for at in range(lines)))
    shutil.copy("a.txt", "copy.txt")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pathlib.Path("v1.txt").write_text("\n".join([*special, *sorted(words)]) + "\n")
    pathlib.Path("v2.txt").write_text("\n".join([*special, *reversed(sorted(words))]) + "\n")


def refused(program, options, said, outputs):
    """outputs: status and output of each rank."""
    for status, text in outputs:
        last = (text.splitlines() or [""])[-1]
        own = said is not None and "command line" in said and status == 2
        if said is None and status != 0 or said is not None and not own and (status != 1 or said not in last):
            yield f"{options}: status {status}, said {text}"


def launched(program, options):
    """Runs mpirun with options for each rank, and returns its stderr."""
    line = ["mpirun", "--oversubscribe", "--allow-run-as-root"]
    for at, own in enumerate(options):
        line += [*([":"] if at else []), "-n", "1", program, *BERT, "2", *own]
    return subprocess.run(line, capture_output=True, text=True, timeout=HANG_S, stdin=subprocess.DEVNULL).stderr


def newcomer(program):
    """A newcomer with other options is refused. One with the same options in another spelling joins."""
    line = [program, *BERT, "700", "--elastic", "1:", "--transport", "gloo"]
    with ranks.Job(2, line) as job:
        ranks.wait_for(job, "step 1/")
        for own in (["--lr", "0.3"], ["--lr", "1e-3"]):
            job.command = [*line, *own]
            job.add(1)
        ends = job.wait(HANG_S)
    if ends[2].status != 1 or "started with --lr 0.3, and rank 0 with --lr 0.001" not in ends[2].output:
        yield f"a newcomer with another --lr: status {ends[2].status}, said {ends[2].output}"
    if any(ends[at].status != 0 for at in (0, 1, 3)) or ": 3x1x1 " not in ends[0].output:
        yield f"the job does not go on: {ends}"


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_texts()
        subprocess.run([program, *BERT, "2", "--save", "saved"], check=True, capture_output=True)
        for options, said in TABLE:
            with ranks.Job(len(options), lambda rank: [program, *BERT, "2", *options[rank], "--transport", "gloo"]) as job:
                ends = job.wait(HANG_S)
            wrong += refused(program, options, said, [(end.status, end.output) for end in ends])
            if said is not None and any(end.seconds > HANG_S / 3 for end in ends):
                wrong.append(f"{options}: after {[end.seconds for end in ends]} s")
        mpirun = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", "1", "true", ":", "-n", "1", "true"]
        # Debian 13's mpirun cannot start ranks with options of their own.
        own = "mpi" in sys.argv and subprocess.run(mpirun, capture_output=True).returncode == 0
        for options, said in TABLE[:3] if own else []:
            if not re.search(rf"error: {re.escape(said)}", text := launched(program, options)):
                wrong.append(f"mpirun, {options}: {text}")
        for over, engine in (("automatic", "MPI"), ("gloo", "Gloo")) if own else []:
            if f"data axis: 2 ranks, {engine} " not in (text := launched(program, [[*D2, "--transport", over]] * 2)):
                wrong.append(f"mpirun, --transport {over}: {text}")
        wrong += newcomer(program)
        os.chdir("/")
    print(f"{len(TABLE)} starts", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
