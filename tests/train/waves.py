#!/usr/bin/env python3
"""waves.py WAVES [MPIRUN]: README's program, run in its own folder, and killed and started again: on as many ranks, on
fewer, on more, and as processes of mpirun. Each restarted run ends with the bytes of an uninterrupted run."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def start(folder, line):
    folder.mkdir(exist_ok=True)
    quiet = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.Popen(line, cwd=folder, env=quiet, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def run(folder, line):
    process = start(folder, line)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said


def processes_of(session):
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            yield int(stat.parent.name)


def killed(folder, line):
    """Kills all processes of the run after its first checkpoint. mpirun's ranks are in process groups of their own."""
    process = start(folder, line)
    while not (folder / "waves_run" / "latest").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    while there := list(processes_of(process.pid)):
        for pid in there:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    process.communicate()
    assert not (folder / "waves_run" / "step-00002000").exists(), "it was over before it was killed"


def end_of(folder):
    return {path.name: path.read_bytes() for path in (folder / "waves_run" / "step-00002000").glob("shard-*.safetensors")}


def main():
    waves, mpirun = sys.argv[1], (sys.argv[2:] or [""])[0]
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        waves = shutil.copy(waves, top / "waves")
        run(top, [waves])
        refused = start(top, [waves, "0"])
        assert "error: a world has at least 1 rank, got 0" in refused.communicate()[0] and refused.returncode == 1
        for ranks in ("1", "2"):
            run(top / f"whole {ranks}", [waves, ranks])
        starts = {"again": ([waves, "2"], [waves, "2"], "2"), "on fewer": ([waves, "2"], [waves, "1"], "1"),
                  "on more": ([waves, "1"], [waves, "2"], "2")}
        if shutil.which(mpirun):
            processes = [mpirun, "--oversubscribe", "-n", "2", waves, "2"]
            starts |= {"under mpirun": ([waves, "2"], processes, "2"), "from mpirun": (processes, [waves, "1"], "1")}
        for case, (first, second, ranks) in starts.items():
            killed(top / case, first)
            run(top / case, second)
            assert end_of(top / case) == end_of(top / f"whole {ranks}"), f"{case}: other bytes"
        print(f"{len(starts)} runs were killed, and went on to the same bytes")


if __name__ == "__main__":
    main()
