#!/usr/bin/env python3
"""session.py collectives|faults|solver PROGRAM: starts PROGRAM by Open MPI's mpirun and compares the ranks' output with
the expected one. Exits with 77 if Open MPI is missing."""

import pathlib
import re
import subprocess
import sys

LAUNCH = pathlib.Path(__file__).parent.parent / "launch" / "mpirun.sh"
LIMIT_S = 3
# The other ranks' error about rank WHO; whether all ranks then continue.
FAULTS = {
    "throw": (r"rank {who}: the disk is full$", True),
    "throw_in_flight": (r"rank {who}: the disk is full$", True),
    "throw_int": (r"rank {who}: an exception of unknown type$", True),
    "shape": (r"ranks do not agree: .*rank {who} calls all_reduce of (7|300000) f32 \(sum\) at misbehaving.hpp:\d+", True),
    "stop": (r"rank {who}(, which watches over all in| \(host .*\),? (which )?has not been heard of for)", False),
    "sleep": (r"rank {who} \(host .*\), which is alive and in no call; its last one, barrier at misbehaving.hpp:\d+", False),
    "absent": (r"not all ranks of the communicator have come to MPI_Comm_idup within 3 s", False),
}


def run(ranks, *command):
    """Returns mpirun's status and the ranks' output."""
    done = subprocess.run([LAUNCH, str(ranks), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=600)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    return done.returncode, done.stdout


def collectives(program):
    for ranks in (2, 4):
        status, said = run(ranks, program)
        print(said.strip(), flush=True)
        if status != 0 or f"all right on {ranks} ranks over MPI" not in said:
            yield f"{ranks} ranks end with status {status}"


def fault(program, what, who):
    sentence, goes_on = FAULTS[what]
    _, said = run(4, program, what, str(who), str(LIMIT_S))
    print(f"{what} of rank {who}:\n{said}", flush=True)
    for rank in range(4):
        # mpirun's own output may be among the lines.
        own = re.findall(rf"rank {rank}: (aborted|failed): (.*)", said)
        if rank == who:
            if goes_on and len(own) != 1:
                yield f"{what}: rank {rank} itself has not ended once"
            if what == "throw" and own != [("failed", f"rank {who}: the disk is full")]:
                yield f"{what}: rank {rank} itself does not say who it is: {own}"
        elif len(own) != 1 or not re.search(sentence.format(who=who), own[0][1]):
            yield f"{what} of rank {who}: rank {rank} says {own}"
        if goes_on and f"rank {rank}: goes on" not in said:
            yield f"{what} of rank {who}: rank {rank} does not go on"


def faults(program):
    status, said = run(1, program, "levels")
    if status != 0 or "all refused" not in said:
        yield f"levels ends with status {status}: {said}"
    for what in FAULTS:
        for who in (0, 2) if what in ("throw", "stop") else (2,):
            yield from fault(program, what, who)


def solver(program):
    curves = {}
    for ranks in (1, 2, 4):
        status, said = run(ranks, program)
        curves[ranks] = re.findall(r"^step +\d+  loss (\S+)$", said, re.MULTILINE)
        if status != 0 or len(curves[ranks]) != 60:
            yield f"{ranks} ranks end with status {status}: {said[-500:]}"
            return
    print(f"losses from {curves[1][0]} to {curves[1][-1]}")
    if float(curves[1][-1]) > float(curves[1][0]) / 10:
        yield "the network learns nothing"
    for ranks in (2, 4):
        if curves[ranks] != curves[1]:
            yield f"{ranks} ranks have other losses than one"


def main():
    wrong = list({"collectives": collectives, "faults": faults, "solver": solver}[sys.argv[1]](sys.argv[2]))
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
