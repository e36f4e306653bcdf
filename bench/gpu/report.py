"""Writes the report of bench/gpu.sh from the files that its parts left in a folder.

report.py part FOLDER NAME --seconds N --failed 0|1    notes that a part has ended
report.py tests LOG OUT.json [--details LAST_TEST_LOG]  counts the results that ctest printed, even if it was cut off
report.py write FOLDER OUT --commit HASH [--merge REPORT.json]
"""
import argparse
import glob
import json
import os
import re
import sys

import targets
from rows import save


def load(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):  # a part was cut off while it wrote
        return {}


def note_part(arguments):
    log = os.path.join(arguments.folder, arguments.name + ".log")
    with open(log, errors="replace") as file:
        lines = file.read().splitlines()
    save(os.path.join(arguments.folder, arguments.name + ".part.json"), json.dumps({
        "seconds": arguments.seconds, "failed": bool(arguments.failed),
        "starts": [line for line in lines if re.match("passed: |FAILED: ", line)],
        "found": [line[3:] for line in lines if line.startswith("-- dhp:")], "end_of_log": lines[-8:]}))


def reasons(path):
    """Returns the last line that each test printed, from the file that ctest leaves."""
    last, name, in_output = {}, None, False
    try:
        with open(path, errors="replace") as file:
            for line in file:
                match = re.match(r"\d+/\d+ Test: (\S+)", line)
                if match:
                    name, in_output = match[1], False
                elif line.startswith("----------"):
                    in_output = True
                elif line.startswith("<end of output>"):
                    in_output = False
                elif in_output and line.strip():
                    last[name] = line.strip().removeprefix("skipped: ")
    except OSError:
        pass
    return last


def count_tests(arguments):
    results = {}
    with open(arguments.log, errors="replace") as file:
        for line in file:
            match = re.match(r" *\d+/\d+ +Test +#\d+: (\S+) [ .]*(\**)(Not Run|\w+)", line)
            if match:
                results[match[1]] = match[3]
    said = reasons(arguments.details) if arguments.details else {}
    having = lambda *wanted: sorted(name for name, result in results.items() if result in wanted)
    skipped, not_built = having("Skipped"), having("Not Run")
    failed = sorted(set(results) - set(having("Passed", "Skipped", "Not Run")))
    save(arguments.out, json.dumps({
        "passed": len(having("Passed")), "tests_failed": failed, "tests_not_built": not_built,
        "tests_skipped": {name: said.get(name, "no reason was given") for name in skipped}}))
    print("%d passed, %d failed, %d not built, %d skipped" % (len(having("Passed")), len(failed), len(not_built),
                                                             len(skipped)))
    for name in failed + not_built:
        print("  FAILED: %s" % name if name in failed else "  not built: %s" % name)
    for name in skipped:  # lessons of several ranks need as many GPUs
        print("  skipped: %s: %s" % (name, said.get(name, "no reason was given")))
    return bool(failed or not_built or not results)


def collect(arguments):
    report = load(arguments.merge) if arguments.merge else {}
    report["commit"] = arguments.commit
    report["machine"] = load(os.path.join(arguments.folder, "machine.json")) or report.get("machine", {})
    parts = report.setdefault("parts", {})
    for path in sorted(glob.glob(os.path.join(arguments.folder, "*.part.json")), key=os.path.getmtime):
        name = os.path.basename(path)[:-len(".part.json")]
        parts[name] = {"commit": arguments.commit, **load(path),
                       **load(os.path.join(arguments.folder, name + ".json"))}
    report["targets"] = targets.figures(parts, report["machine"].get("device", ""))
    return report


def number(value, form="%.4g"):
    return "-" if value is None else form % value


def gib(value):
    return "-" if not value else "%.1f GiB" % (value / 2**30)


def tests_text(part):
    yield "%d tests passed, %d failed, %d were not built, %d were skipped." % (
        part["passed"], len(part["tests_failed"]), len(part["tests_not_built"]), len(part["tests_skipped"]))
    yield ""
    yield from ("- FAILED: %s" % name for name in part["tests_failed"])
    yield from ("- not built: %s" % name for name in part["tests_not_built"])
    yield from ("- skipped: %s: %s" % item for item in part["tests_skipped"].items())


def figures_text(rows):
    for row in rows:
        if "failed" in row:
            yield "- %(figure)s: failed: %(failed)s" % row
            continue
        yield "- %(figure)s: **%(ratio).3f** (%(ratio_least).3f to %(ratio_most).3f)" % row
        if "tokens_per_s" in row:
            yield "  %.4g and %.4g tokens that count a second; of the rows of padded batches %.0f %% count" % (
                *row["tokens_per_s"], 100 * row["share_of_padded_rows_that_count"])


def alone_text(rows):
    for row in rows:
        if "failed" in row:
            yield "- %(case)s, %(precision)s: failed: %(failed)s" % row
            continue
        share = ", %.0f %% of the bound" % (100 * row["dhp_share_of_bound"]) if "dhp_share_of_bound" in row else ""
        yield "- %s, %s, batch %d: **%s samples/s** over %d steps%s, memory %s" % (
            row["case"], row["precision"], row["batch"], number(row["dhp_samples_per_s"]), row["steps"], share,
            gib(row["dhp_peak_memory_bytes"]))


def table(rows):
    yield "| case | against | batch | dhp samples/s | PyTorch | dhp / PyTorch | dhp of the bound | PyTorch of it | memory, both |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if "failed" in row:
            yield "| %s, %s | failed: %s |" % (row["case"], row["precision"], row["failed"].replace("|", "/"))
            continue
        yield "| %s, %s | %s | %d | %s | %s | **%.3f** (%.3f to %.3f) | %.0f %% | %.0f %% | %s, %s |" % (
            row["case"], row["precision"], row["peer"], row["batch"], number(row["dhp_samples_per_s"]),
            number(row["peer_samples_per_s"]), row["ratio"], row["ratio_least"], row["ratio_most"],
            100 * row["dhp_share_of_bound"], 100 * row["peer_share_of_bound"], gib(row["dhp_peak_memory_bytes"]),
            gib(row["peer_peak_memory_bytes"]))


def text_of(report):
    machine = report["machine"]
    yield "# dhp on a GPU"
    yield ""
    yield "Commit %s." % report["commit"]
    if machine:
        yield ("%s, driver %s, nvcc %s, PyTorch %s (CUDA %s, cuDNN %s). A copy in its memory moves %s TB/s, read and "
               "written; a bf16 matrix product of 8192^3 runs at %s TFLOP/s: the bounds below." % (
                   machine["device"], machine["driver"], machine["nvcc"], machine["pytorch"], machine["pytorch_cuda"],
                   machine["pytorch_cudnn"], number(machine["copy_bytes_per_s"] / 1e12),
                   number(machine["bf16_matrix_flop_per_s"] / 1e12)))
    if machine and "multiprocessors" not in machine:
        yield "**A trial of the scripts with small models on the CPU: its figures say nothing.**"
    yield ""
    yield "| figure | asked | measured | |"
    yield "|---|---|---|---|"
    for line in report["targets"]:
        yield "| %(figure)s | %(asked)s | %(measured)s | %(verdict)s |" % line
    for name, part in report["parts"].items():
        yield ""
        yield "## %s" % name
        yield ""
        yield "%d s%s%s" % (part.get("seconds", 0), ", FAILED" if part.get("failed") else "",
                            "" if part.get("commit") == report["commit"] else ", of commit %s" % part.get("commit"))
        yield ""
        if "passed" in part:
            yield from tests_text(part)
        elif name == "nccl":
            yield from ("- %s" % line for line in part.get("starts") or part.get("end_of_log", []))
        elif name == "sanitize" and "rows" in part:
            for row in part["rows"]:
                yield "- %s %s: %s" % (row["tool"], row["file"], row["result"])
        elif name in ("ranks", "recorded", "elastic", "features") and "rows" in part:
            for row in part["rows"]:
                yield "- %s (data x tensor x pipeline): %s, largest difference of a loss %s" % (
                    row["layout"], row["result"], number(row.get("largest_difference"), "%.1e"))
        elif part.get("figures"):
            yield from figures_text(part["figures"])
        elif name.endswith("_steps") and part.get("rows"):
            yield from alone_text(part["rows"])
        elif part.get("rows"):
            yield from table(part["rows"])
        else:
            yield "```"
            yield from part.get("found", []) + part.get("end_of_log", [])
            yield "```"
    yield ""
    yield "Both sides in turns in the same run; ratios are of medians, in brackets those of the single rounds."


def write(arguments):
    report = collect(arguments)
    os.makedirs(arguments.out, exist_ok=True)
    save(os.path.join(arguments.out, "report.json"), json.dumps(report, indent=1) + "\n")
    save(os.path.join(arguments.out, "report.md"), "\n".join(text_of(report)) + "\n")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    part = commands.add_parser("part")
    part.add_argument("folder")
    part.add_argument("name")
    part.add_argument("--seconds", type=int, default=0)
    part.add_argument("--failed", type=int, default=0)
    part.set_defaults(do=note_part)
    tests = commands.add_parser("tests")
    tests.add_argument("log")
    tests.add_argument("out")
    tests.add_argument("--details")
    tests.set_defaults(do=count_tests)
    whole = commands.add_parser("write")
    whole.add_argument("folder")
    whole.add_argument("out")
    whole.add_argument("--commit", default="unknown")
    whole.add_argument("--merge")
    whole.set_defaults(do=write)
    arguments = parser.parse_args()
    return arguments.do(arguments)


sys.exit(main())
