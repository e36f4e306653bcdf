"""Collectives and messages of two ranks, against what they are made of.

communication.py PROGRAM [--runs N] [--json FILE]: starts bench_communication as one process whose ranks are threads, against
std::memcpy of as many bytes by both threads at once; then as two processes over Gloo on the loopback, against Gloo's own ring,
all-gather, reduce-scatter and messages between the same two; then as two processes of Open MPI's mpirun, against MPI's own. Medians of
11 rounds in turns; the ratio is the peer's time over dhp's, above 1 where dhp is faster. send_recv is a message there and one
back. With --runs the whole is done so often, and
each figure is the median of the runs.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

limit_s = 300
mpirun = pathlib.Path(__file__).parent.parent / "tests" / "launch" / "mpirun.sh"


def run(program):
    """Lines of all kinds of ranks."""
    return run_threads(program) + run_processes(program, "gloo") + run_by_mpi(program)


def run_by_mpi(program):
    done = subprocess.run([mpirun, "2", program, "mpi"], text=True, stdout=subprocess.PIPE, timeout=limit_s,
                          env=dict(os.environ, DHP_LAUNCH_SECONDS=str(limit_s)))
    if done.returncode == 77 or "skipped: " in done.stdout:
        print(done.stdout.splitlines()[0])
        return []
    if done.returncode != 0:
        sys.exit("communication.py: the ranks over MPI ended with %d" % done.returncode)
    return [line for line in done.stdout.splitlines() if line.startswith("mpi ")]


def run_threads(program):
    done = subprocess.run([program, "threads"], text=True, stdout=subprocess.PIPE, timeout=limit_s)
    if done.returncode != 0:
        sys.exit("communication.py: the ranks that are threads failed")
    return done.stdout.splitlines()


def run_processes(program, over):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [subprocess.Popen([program, over], text=True, stdout=subprocess.PIPE,
                              env=dict(os.environ, DHP_RANK=str(rank), DHP_WORLD_SIZE="2",
                                       DHP_MASTER_ADDR="127.0.0.1", DHP_MASTER_PORT=str(port)))
             for rank in range(2)]
    try:
        said = [rank.communicate(timeout=limit_s)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    statuses = [rank.returncode for rank in ranks]
    if statuses == [77, 77]:
        print(said[0].strip())
        return []
    if statuses != [0, 0]:
        sys.exit("communication.py: the ranks that are processes ended with %s" % statuses)
    return said[0].splitlines()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="bench_communication")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print("load before: %.1f on %d cores" % (load, os.cpu_count()))
    print("%-10s %-15s %11s %11s %11s %7s" % ("ranks", "operation", "KiB", "dhp us", "peer us", "ratio"))
    times = {}  # of dhp and the peer, by what was measured
    for _ in range(arguments.runs):
        for line in run(arguments.program):
            ranks, operation, size, ours, peer = line.split()
            times.setdefault((ranks, operation, int(size)), []).append((float(ours), float(peer)))
    rows = []
    for (ranks, operation, size), both in times.items():
        ours, peer = (statistics.median(column) for column in zip(*both))
        ratios = [theirs / mine for mine, theirs in both]
        row = {"ranks": ranks, "operation": operation, "bytes": size, "dhp_s": ours, "peer_s": peer,
               "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        print("%-10s %-15s %11.0f %11.1f %11.1f %7.2f" % (ranks, operation, size / 1024, ours * 1e6, peer * 1e6, row["ratio"]))
        rows.append(row)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"peer": {"threads": "std::memcpy", "gloo": "Gloo", "mpi": "MPI"}, "runs": arguments.runs, "load": load, "rows": rows}, file,
                      indent=1)
    return 0


sys.exit(main())
