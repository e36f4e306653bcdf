"""Collectives and messages of two ranks against the primitives below them.

communication.py PROGRAM [--runs N] [--json FILE]: starts bench_communication three times. First, one process whose
ranks are threads, against std::memcpy of as many bytes by both threads at once. Then two processes over Gloo on the
loopback, against Gloo's own ring, all-gather, reduce-scatter and messages between the same two. Then two processes of
Open MPI's mpirun, against MPI's own. Prints medians of 11 rounds in turns. The ratio is the peer's time over dhp's,
above 1 where dhp is faster. send_recv is a round trip. --runs N repeats everything N times and prints the medians over
the runs.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys

import results_file
from processes import ranks

limit_s = 300
mpirun = pathlib.Path(__file__).parent.parent / "tests" / "launch" / "mpirun.sh"


def run(program):
    """Returns the output lines of ranks as threads, over Gloo and over MPI."""
    threads = subprocess.run([program, "threads"], text=True, stdout=subprocess.PIPE, timeout=limit_s, check=True)
    over_gloo = ranks.run(2, [program, "gloo"], limit_s)[0]
    over_mpi = subprocess.run([mpirun, "2", program, "mpi"], text=True, stdout=subprocess.PIPE, timeout=limit_s,
                              env=dict(os.environ, DHP_LAUNCH_SECONDS=str(limit_s)))
    if over_mpi.returncode not in (0, 77):  # 77: bench_communication has reported that mpirun is missing
        sys.exit("communication.py: the ranks over MPI ended with %d" % over_mpi.returncode)
    lines = (threads.stdout + over_gloo.output + over_mpi.stdout).splitlines()
    for line in dict.fromkeys(lines):  # both ranks print each line
        if line.startswith("skipped: "):
            print(line)
    return [line for line in lines if line.startswith(("threads ", "gloo ", "mpi "))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="bench_communication")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print("load before: %.1f on %d cores" % (load, os.cpu_count()))
    print("%-10s %-15s %11s %11s %11s %7s" % ("ranks", "operation", "KiB", "dhp us", "peer us", "ratio"))
    times = {}  # times of dhp and of the peer, by measurement
    for _ in range(arguments.runs):
        for line in run(arguments.program):
            kind, operation, size, ours, peer = line.split()
            times.setdefault((kind, operation, int(size)), []).append((float(ours), float(peer)))
    rows = []
    for (kind, operation, size), both in times.items():
        ours, peer = (statistics.median(column) for column in zip(*both))
        ratios = [theirs / mine for mine, theirs in both]
        row = {"ranks": kind, "operation": operation, "bytes": size, "dhp_s": ours, "peer_s": peer,
               "ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        print("%-10s %-15s %11.0f %11.1f %11.1f %7.2f" % (kind, operation, size / 1024, ours * 1e6, peer * 1e6, row["ratio"]))
        rows.append(row)
    if arguments.json:
        results_file.save(arguments.json, {"peer": {"threads": "std::memcpy", "gloo": "Gloo", "mpi": "MPI"}, "runs": arguments.runs,
                                           "load": load, "rows": rows})
    return 0


sys.exit(main())
