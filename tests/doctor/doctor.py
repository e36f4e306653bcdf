#!/usr/bin/env python3
"""doctor.py WHAT PROGRAM: tests the program dhp_doctor.
  command_line  options, JSON, exit status, refusals; the table of docs/doctor.md
  threads       every injected fault is found, and nothing else, on threads
  processes     the same for some faults on four processes, which all have the same exit status"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "processes"))
import ranks  # noqa: E402

FAULTS = {"other-version": "versions", "slow-copy": "compute", "slow-gemm": "compute", "wrong-gemm": "compute",
          "wrong-sum": "collectives", "missing-rank": "collectives", "slow-link": "links"}
# The machine may be busy, so limits are wide; only an injected fault exceeds them.
QUICK = ["--quick", "--tolerance", "6"]
SOUND = (0, 1, 2)  # exit status without a fault: a busy machine may rightly cause warnings and slow ranks


def run(program, *arguments):
    variables = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    ended = subprocess.run([program, *arguments], env=variables, capture_output=True, text=True, timeout=600)
    return ended.returncode, ended.stdout, ended.stderr


def problems(file):
    return [(finding["check"], problem) for finding in json.loads(file.read_text())["findings"]
            for problem in finding["problems"]]


def failures(file, fault=None):
    """Returns failed problems, without those that other load may cause unless the fault's own check found them."""
    return [(check, problem) for check, problem in problems(file) if problem["verdict"] == "failed" and
            (check == FAULTS.get(fault) or "is another program at work there?" not in problem["sentence"])]


def check_found(fault, file):
    """Only the fault's own check must find the fault of rank 2."""
    found = failures(file, fault)
    assert found, fault
    for check, problem in found:
        named = 2 in problem["ranks"] or "for rank 2" in problem["sentence"]
        assert check == FAULTS[fault] and named, (fault, check, problem)
        print(f"{fault}: {problem['sentence']}", flush=True)


def command_line(program, folder):
    for arguments, words in [(["--ranks", "0"], "--ranks"), (["--what"], "--what"), (["--inject", "slow"], "slow"),
                             (["--rank", "1"], "--world-size"),
                             (["--ranks", "3", "--tensor-parallel", "2"], "does not divide"),
                             (["--ranks", "2", "--inject", "slow-gemm", "--inject-rank", "2"], "is none of the ranks, 0 to 1"),
                             (["--inject-rank", "1", "--ranks", "2"], "--inject-rank needs --inject"),
                             (["--inject", "slow-gemm"], "slow-gemm shows only beside other ranks: start at least 2"),
                             (["--ranks", "2", "--inject", "slow-link"], "beside other ranks: start at least 3"),
                             (["--calibrate", "a.toml", "--json", "a.json"], "leave out --json")]:
        status, out, error = run(program, *arguments)
        assert status == 64 and words in error and not out, (arguments, status, out, error)
    for option in "--json", "--calibrate":  # before anything is measured
        status, out, error = run(program, option, folder / "none" / "x")
        assert status == 1 and f"cannot write {option} " in error and not out, (option, status, out, error)

    # The page has the program's own options.
    rows = [line for line in (HERE.parents[1] / "docs" / "doctor.md").read_text().splitlines() if "| `--" in line]
    listed = {name for row in rows for name in re.findall(r"`(--[a-z-]+)", row.split("|")[1])}
    there = set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", run(program, "--help")[1], re.MULTILINE))
    shared = {"--rank", "--world-size", "--local-rank", "--master", "--network-interface", "--transport"}
    assert listed == there - shared - {"--help", "--version"}, listed ^ there

    report = folder / "report.json"
    status, page, error = run(program, *QUICK, "--ranks", "4", "--tensor-parallel", "2", "--json", str(report))
    assert status in SOUND and not failures(report), (status, page, error)
    assert "4 ranks on 1 host" in page and "tensor axis" in page and "data axis" in page, page
    assert all(len(line) <= 130 or line.startswith("warning: ") for line in page.splitlines()), page
    status, page, error = run(program, *QUICK)
    assert status in SOUND and "3 skipped" in page, (status, page, error)
    status, page, _ = run(program, *QUICK, "--ranks", "2", "--min-bandwidth", "1e9")
    assert status == 1 and "GB/s that were asked for" in page, (status, page)
    status, _, error = run(program, *QUICK, "--json", str(folder / "no" / "report.json"))
    assert status == 1 and "cannot write --json" in error, error


def threads(program, folder):
    report = folder / "report.json"
    for fault in FAULTS:
        timeout = "4" if fault == "missing-rank" else "60"
        status, page, error = run(program, *QUICK, "--ranks", "4", "--json", str(report), "--comm-timeout", timeout,
                                  "--inject", fault, "--inject-rank", "2")
        assert status == 1, (fault, page, error)
        check_found(fault, report)


def processes(program, folder):
    report = folder / "report.json"

    def job(timeout, *arguments):
        report.unlink(missing_ok=True)
        command = [program, *QUICK, "--comm-timeout", timeout, "--json", str(report), *arguments]
        with ranks.Job(4, command) as started:
            return started.wait(300)

    ends = job("60")
    assert len({end.status for end in ends}) == 1 and ends[0].status in SOUND, [end.output for end in ends]
    assert not failures(report), report.read_text()
    assert " ok, " in ends[0].output and not any(end.output for end in ends[1:]), [end.output for end in ends]

    for fault in ("slow-gemm", "wrong-sum", "slow-link"):
        ends = job("60", "--inject", fault, "--inject-rank", "2")
        assert [end.status for end in ends] == [1] * 4, (fault, [end.output for end in ends])
        check_found(fault, report)

    # The failure detector names a missing rank; rank 0 still reports the earlier checks.
    ends = job("4", "--inject", "missing-rank", "--inject-rank", "2")
    assert all(end.status == 1 for end in ends), [end.output for end in ends]
    assert all("for rank 2" in end.output for end in ends if end.rank != 2), [end.output for end in ends]
    check_found("missing-rank", report)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        {"command_line": command_line, "threads": threads, "processes": processes}[sys.argv[1]](
            sys.argv[2], pathlib.Path(temporary))
