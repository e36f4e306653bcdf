"""NVIDIA's compute-sanitizer over the tests of single ops: sanitize.py PROGRAM OUT.json --seconds N FILE...

The cases of every FILE run under memcheck (addresses), racecheck (shared memory without a barrier) and initcheck
(memory read before it is written), several at a time. Cases without time are listed as not run.
"""
import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

from rows import save_rows

tools = {"memcheck": ["--leak-check", "no"], "racecheck": [], "initcheck": []}
found_errors = 99


def run(tool, file, arguments, end):
    """Returns the result, its seconds, and the end of the tool's output."""
    left = end - time.monotonic()
    if left < 5:
        return {"tool": tool, "file": file, "result": "not run"}, ""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(found_errors), *tools[tool],
               arguments.program, "--source-file=*/" + os.path.basename(file)]
    start = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=min(left, arguments.each))
        result = {0: "clean", found_errors: "errors"}.get(done.returncode, "status %d" % done.returncode)
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        result, said = "too slow", (late.stdout or b"").decode(errors="replace")
    return {"tool": tool, "file": file, "result": result, "seconds": round(time.monotonic() - start, 1)}, said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--each", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=4)
    arguments = parser.parse_args()
    if shutil.which("compute-sanitizer") is None:
        sys.exit("compute-sanitizer is not in PATH")
    end = time.monotonic() + arguments.seconds
    rows = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(run, tool, file, arguments, end) for tool in tools for file in arguments.files]
        for finished in concurrent.futures.as_completed(runs):
            row, said = finished.result()
            rows.append(row)
            print("%(tool)-10s %(file)-32s %(result)s" % row, flush=True)
            if row["result"] != "clean":
                print("\n".join(said.splitlines()[-40:]), flush=True)
            save_rows(arguments.out, rows)
    return any(row["result"] not in ("clean", "not run") for row in rows)


sys.exit(main())
