"""Instructions that PipelineParallel, DataParallel and Trainer add to a step in a group of one.

wrapper_cost.py PROGRAM [--json FILE]: runs bench_wrapper_cost under callgrind, bare and wrapped, with one step and with
three. Their difference is two steps without the set-up. Losses must have the same digits. Exits with status 77 if
valgrind is not installed.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import results_file


def count(program, workload, how, steps):
    """Returns the instructions of a whole run, and its output."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + os.devnull, program, workload, how, str(steps)]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit("wrapper_cost.py: %s failed:\n%s" % (" ".join(command), done.stderr))
    return int(found.group(1)), done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="bench_wrapper_cost")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (Debian: valgrind)")
        return 77
    rows = []
    print("%-10s %22s %22s %9s" % ("step of", "bare, instructions", "wrapped", "added"))
    for workload in ("bert-tiny", "resnet14"):
        a_step, losses = {}, {}
        for how in ("bare", "wrapped"):
            few, _ = count(arguments.program, workload, how, 1)
            many, losses[how] = count(arguments.program, workload, how, 3)
            a_step[how] = (many - few) / 2
        if losses["bare"] != losses["wrapped"]:
            sys.exit("wrapper_cost.py: bare and wrapped steps give different losses:\n%(bare)s---\n%(wrapped)s" % losses)
        added = a_step["wrapped"] / a_step["bare"] - 1
        print("%-10s %22.0f %22.0f %8.2f%%" % (workload, a_step["bare"], a_step["wrapped"], 100 * added), flush=True)
        rows.append({"workload": workload, "bare": a_step["bare"], "wrapped": a_step["wrapped"], "added": added})
    if arguments.json:
        results_file.save(arguments.json, {"rows": rows})
    return 0


sys.exit(main())
