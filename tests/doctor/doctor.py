#!/usr/bin/env python3
"""doctor.py WHAT PROGRAM FAKE_NVML: dhp_doctor as a program.
  command_line  limits, JSON, exit status, what is refused; the tables of docs/doctor.md
  gpus          GPUs that a made-up NVML knows: good, sick, old ones, none
  self_test     every fault is found, by threads
  processes     four processes over loopback: a clean run, faults with their rank, the same exit status on all"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "processes"))
import ranks  # noqa: E402

# Ranks share a machine that others keep busy: only what is made wrong on purpose is so far off.
LOOSE = {name: {"warning": None, "failed": failed} for name, failed in {
    "copy_slowdown": 12, "gemm_slowdown": 12, "link_slowdown": 30, "storage_slowdown": 30, "storage_free_gb": None,
    "clock_skew_s": 10}.items()}


def run(program, *arguments, **environment):
    variables = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    ended = subprocess.run([program, *arguments], env=variables | environment, capture_output=True, text=True,
                           timeout=300)
    return ended.returncode, ended.stdout, ended.stderr


def problems(report):
    return [(finding["check"], problem) for finding in report["findings"] for problem in finding["problems"]]


def command_line(program, _, folder):
    status, printed, _ = run(program, "--print-limits")
    limits = json.loads(printed)
    assert status == 0 and limits["gemm_slowdown"]["failed"] == 2, printed
    file = folder / "limits.json"

    def with_limits(text, *arguments):
        file.write_text(text)
        return run(program, "--quick", "--limits", str(file), *arguments)

    assert with_limits(printed, "--print-limits")[1] == printed
    for text, words in [("{", "is not a JSON object"), ('{"x": {}}', 'there is no limit "x"'),
                        ('{"clock_skew_s": {"failed": "1"}}', 'clock_skew_s.failed is "1"')]:
        status, out, error = with_limits(text)
        assert status == 64 and words in error and error.count("\n") == 1 and not out, (status, out, error)
    for arguments, words in [(["--limits", str(folder / "none")], "cannot read --limits"),
                             (["--ranks", "0"], "--ranks"), (["--what"], "--what"),
                             (["--inject", "slow=1"], 'there is no fault "slow"'),
                             (["--inject", "slow-gemm=1"], "the last one is rank 0"),
                             (["--rank", "1"], "--world-size"),
                             (["--self-test", "--rank", "0", "--world-size", "2", "--master", "127.0.0.1"],
                              "--self-test starts its ranks itself")]:
        status, out, error = run(program, *arguments)
        assert status == 64 and words in error and not out, (arguments, status, out, error)

    # The page has the options and limits that there are, with their defaults.
    page = (pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "doctor.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(--[a-z-]+)", row.split("|")[1])}
    there = set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", run(program, "--help")[1], re.MULTILINE))
    assert listed == there - {"--help", "--version"}, listed ^ there
    for name, limit in limits.items():
        row = next(row for row in rows if row.startswith(f"| `{name}` "))
        for column, key in ((2, "warning"), (3, "failed")):
            said = row.split("|")[column].split()
            assert (float(said[-1]) if said else None) == limit[key], row

    # One rank, then two; nothing, a warning, a failure.
    report = folder / "report.json"
    for count in ("1", "2"):
        status, printed, error = with_limits(json.dumps(LOOSE), "--ranks", count, "--json", str(report),
                                             "--storage", str(folder), "--storage-mb", "2")
        found = json.loads(report.read_text())
        assert status == 0 and found["verdict"] == "ok" and not problems(found), (status, printed, error)
        assert len(found["hosts"]) == int(count) and f"{count} rank" in printed, printed
        assert max(map(len, printed.splitlines())) <= 110, printed
        assert sorted(path.name for path in folder.iterdir()) == ["limits.json", "report.json"]
    huge = {"storage_free_gb": {"warning": 1e9, "failed": None}}
    for change, wanted in [(huge, 2), ({"network_gb_s": {"failed": 1e9}}, 1),
                           (huge | {"network_gb_s": {"failed": 1e9}}, 1)]:
        status, printed, error = with_limits(json.dumps(LOOSE | change), "--ranks", "2", "--json", str(report),
                                             "--storage", str(folder), "--storage-mb", "1")
        assert status == wanted, (status, printed, error)
        assert json.loads(report.read_text())["verdict"] == {1: "failed", 2: "warning"}[wanted]
    status, _, error = run(program, "--quick", "--json", str(folder / "no" / "report.json"))
    assert status == 1 and "cannot write --json" in error, error


def gpus(program, fake, folder):
    report = folder / "report.json"

    def finding(**environment):
        status, printed, error = run(program, "--quick", "--nvml", fake, "--json", str(report), **environment)
        assert report.exists(), error
        found = next(one for one in json.loads(report.read_text())["findings"] if one["check"] == "gpu")
        return status, found, printed

    status, found, printed = finding(FAKE_NVML="good")
    assert status == 0 and found["verdict"] == "ok" and found["summary"].startswith("2 GPUs"), printed
    status, found, printed = finding(FAKE_NVML="sick")
    said = " ".join(problem["sentence"] for problem in found["problems"])
    assert status == 1 and found["verdict"] == "failed", printed
    for words in ("97 degrees", "2 ECC errors", "9 rows", "8 lanes of 16", "could not be remapped", "it is hot"):
        assert words in said, said
    assert "00000000:3B:00.0" in said and "00000000:18:00.0" not in said, said
    status, found, printed = finding(FAKE_NVML="old")
    assert "not known: ECC errors" in found["summary"] and "12 pages" in found["problems"][0]["sentence"], printed
    status, found, printed = finding(FAKE_NVML="none")
    assert status == 0 and found["verdict"] == "skipped" and "Driver Not Loaded" in found["summary"], printed


def self_test(program, *_):
    status, printed, error = run(program, "--self-test", "--ranks", "4")
    print(printed)
    assert status == 0 and "WRONG" not in printed and printed.count("found  ") == 12, (status, error)
    status, printed, error = run(program, "--self-test", "--ranks", "2")
    assert status == 1 and "needs at least 3 ranks" in error, (status, error)


def processes(program, _, folder):
    limits, report = folder / "limits.json", folder / "report.json"
    limits.write_text(json.dumps(LOOSE))

    def job(timeout, *arguments):
        report.unlink(missing_ok=True)
        port = ranks.free_port()

        def command(rank):
            return [program, "--quick", "--rank", str(rank), "--world-size", "4", "--master", f"127.0.0.1:{port}",
                    "--comm-timeout", timeout, "--limits", str(limits), "--json", str(report), "--storage",
                    str(folder), "--storage-mb", "2", *arguments]
        with ranks.Job(4, command) as started:
            return started.wait(200)

    ends = job("60")
    found = json.loads(report.read_text())
    assert [end.status for end in ends] == [0] * 4, [end.output for end in ends]
    assert not problems(found) and "Gloo" in json.dumps(found), found
    assert "ok" in ends[0].output and not any(end.output for end in ends[1:]), [end.output for end in ends]

    for fault, check in [("slow-gemm", "gemm"), ("wrong-sum", "collectives"), ("slow-link", "links"),
                         ("skewed-clock", "clock"), ("wrong-storage", "storage"), ("other-version", "versions")]:
        ends = job("60", "--inject", f"{fault}=2")
        assert [end.status for end in ends] == [1] * 4, (fault, [end.output for end in ends])
        for where, problem in problems(json.loads(report.read_text())):
            assert where == check and 2 in problem["ranks"], (fault, where, problem)
            print(f"{fault}: {problem['sentence']}", flush=True)

    # A rank that does not come is named by the world's own watch; rank 0 still says what it knows.
    ends = job("4", "--inject", "missing-rank=2")
    assert all(end.status == 1 for end in ends), [end.output for end in ends]
    assert all("for rank 2" in end.output for end in ends if end.rank != 2), [end.output for end in ends]
    where, problem = problems(json.loads(report.read_text()))[-1]
    assert where == "collectives" and "for rank 2" in problem["sentence"], problem
    print(f"missing-rank: {problem['sentence']}")


def main():
    what, program, fake = sys.argv[1:]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk has moods of its own
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        {"command_line": command_line, "gpus": gpus, "self_test": self_test, "processes": processes}[what](
            program, fake, pathlib.Path(folder))


if __name__ == "__main__":
    main()
