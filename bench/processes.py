"""Runs ranks as processes of this host. Who imports it can also import the modules of tests/processes and support."""
import os
import pathlib
import sys
import threading

tests = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(tests / "processes"), str(tests / "support")]
import ranks  # noqa: E402

limit_s = 900


def as_processes(count, command):
    """Runs one process for each rank; returns the output and the peak resident bytes of each."""
    environment = {"OMP_NUM_THREADS": "1",
                   "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}  # glibc returns large freed blocks at once
    found = []
    with ranks.Job(count, command, environment) as job:
        too_long = threading.Timer(limit_s, lambda: [process.kill() for process in job.processes])
        too_long.start()
        try:
            for rank, process in enumerate(job.processes):
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                found.append((job.output(rank), used.ru_maxrss * 1024))
                if process.returncode != 0:
                    sys.exit("%s ended with %d:\n%s" % (command, process.returncode, found[-1][0][-3000:]))
        finally:
            too_long.cancel()
    return found
