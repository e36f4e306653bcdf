#!/usr/bin/env python3
"""Compares the planner's predictions with runs on this machine: step times and memory of layouts outside calibration.

planner.py PROGRAMS [--networks MEGABITS...] [--steps N] [--save FILE]

First dhp_doctor --calibrate measures the machine. One rank alone runs each model with three micro-batch sizes, which
scales the device rates to that model. Then all predictions are written to FILE, and only then the layouts run, as
threads. With --networks they also run as processes on two hosts, which are network namespaces of this machine with a
core each, whose links carry MEGABITS a second (needs iproute2, and root or user namespaces). Prints a table and the
planner's errors."""
import argparse
import collections
import json
import operator
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import processes  # noqa: F401
import network
from programs import axes, ended, recorded

SAMPLES = 32
MODELS = {"bert": ("train_bert", "--preset tiny --sequence-length 64 --vocabulary-size 4096"),
          "resnet50": ("train_resnet50", "--depth 14 --width 16 --image-size 32 --classes 10")}
COMMON = f"--data synthetic-resident --global-batch {SAMPLES}".split()
CALIBRATES = (1, 4, 16)  # micro-batch sizes of one rank
ROUNDS = 3  # the layouts run in turns, as the speed of a shared machine drifts
# Mesh, micro-batch, and further options.
THREADS = [(mesh, size, more) for mesh in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2))
           for size, more in ((2, ""), (8, ""))] + [
    ((1, 1, 1), 2, ""), ((1, 1, 1), 8, ""), ((1, 1, 1), 4, "--recompute"), ((2, 1, 1), 4, "--recompute"),
    ((2, 1, 1), 4, "--zero 2"), ((4, 1, 1), 4, "--zero 1"), ((1, 1, 2), 4, "--schedule zero-bubble"),
    ((1, 1, 2), 4, "--recompute")]
HOSTS = [((2, 1, 1), 8, ""), ((2, 1, 1), 2, ""), ((2, 1, 1), 4, "--zero 2"), ((1, 2, 1), 8, ""), ((1, 1, 2), 8, ""),
         ((1, 1, 2), 2, "")]


class Hosts(network.Network):
    """Two hosts, each with a core of its own."""

    def __init__(self):
        super().__init__(count=2)

    def prefix(self, number):
        return [*super().prefix(number), "taskset", "-c", str(number)]

    def run_alone(self, command):
        """A job of one rank on each host, at the same time: the hosts share the machine's memory."""
        jobs = [subprocess.Popen([*self.prefix(number), *command(number)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) for number in range(self.count)]
        if any([job.wait() for job in jobs]):
            raise RuntimeError(f"{command(0)} failed")


def options(model, case):
    mesh, size, more = case
    return [*MODELS[model][1].split(), *COMMON, *axes(mesh), "--micro-batch", str(size), *more.split()]


def case_of(row):
    return tuple(row["mesh"]), row["micro_batch"], row["more"]


def predicted(programs, folder, model, case, cluster):
    out = folder / "plan.json"
    fixed = [*options(model, case), *(["--zero", "0"] if "--zero" not in case[2] else []),
             *(["--recompute=false"] if "--recompute" not in case[2] else []),
             *(["--schedule", "1f1b"] if "--schedule" not in case[2] else [])]
    ended(programs / "dhp_plan", "--model", model, "--cluster", cluster, "--json", out, *fixed)
    found = json.loads(out.read_text())[0]
    return {"s": found["seconds"], "parts": found["parts"], "bytes": found["stage_bytes"][0]}


def ran(programs, folder, model, case, steps, hosts=None):
    """Returns the seconds of each step after the second one, and rank 0's peak memory."""
    def command(rank):
        return [str(programs / MODELS[model][0]), *options(model, case), "--steps", str(steps), "--overwrite",
                "--metrics", str(folder / f"{rank}.jsonl"), "--evaluate-samples", str(case[1])]

    if hosts is None:
        ended(*command(0))
    elif case[0] == (1, 1, 1):
        hosts.run_alone(command)
    else:
        hosts.run(command, 300)
    lines = recorded(folder / "0.jsonl")[2:]
    return ([SAMPLES / line["samples_per_s"] for line in lines],
            max(line.get("peak_memory_bytes", 0) for line in lines))


def with_rates(text, slower, launch_us):
    """Returns the cluster's file with devices that are `slower` times slower and launches of launch_us."""
    text = re.sub(r"^(device.(?:tflops_\w+|gb_per_s)) = (.*)$",
                  lambda found: f"{found[1]} = {float(found[2]) / slower}", text, flags=re.M)
    return re.sub(r"^device.launch_us = .*$", f"device.launch_us = {launch_us}", text, flags=re.M)


def calibrated(programs, folder, name, steps, hosts=None):
    """Returns the doctor's file, and one for each model: its rates and launch cost follow from runs of one rank, by
    least squares of the relative errors."""
    raw = folder / f"{name}.toml"
    if hosts is None:
        ended(programs / "dhp_doctor", "--ranks", "2", "--calibrate", raw)
    else:
        hosts.run([str(programs / "dhp_doctor"), "--calibrate", str(raw)], 300)
        raw.write_text(re.sub(r"^host.cores = .*$", "host.cores = 1", raw.read_text(), flags=re.M))
    made, text, trial = {"doctor": raw}, raw.read_text(), folder / "trial.toml"
    for model in MODELS:
        found = []
        for size in CALIBRATES:
            alone = ((1, 1, 1), size, "")
            took = statistics.median(ran(programs, folder, model, alone, steps, hosts)[0])
            trial.write_text(with_rates(text, 1, 0))
            work = predicted(programs, folder, model, alone, trial)["s"]
            trial.write_text(with_rates(text, 1, 1))
            found.append((work / took, (predicted(programs, folder, model, alone, trial)["s"] - work) / took))
        x, y = zip(*found)
        xx, xy, yy = (sum(map(operator.mul, *pair)) for pair in ((x, x), (x, y), (y, y)))
        launch_us = max(0, (xx * sum(y) - xy * sum(x)) / (xx * yy - xy * xy))
        slower = (sum(x) - xy * launch_us) / xx
        made[model] = folder / f"{name}_{model}.toml"
        made[model].write_text(with_rates(text, slower, launch_us))
        print(f"{model} {name}: devices {slower:.2f} times slower than the doctor says, {launch_us:.1f} us a launch")
    return made


def ranked(values):
    return list(map(sorted(values).index, values))


def summary(rows):
    errors = [abs(row["predicted"]["s"] / row["measured_s"] - 1) for row in rows]
    memory = [abs(row["predicted"]["bytes"] / row["measured_bytes"] - 1) for row in rows]
    places = ranked([row["predicted"]["s"] for row in rows]), ranked([row["measured_s"] for row in rows])
    correlation = statistics.correlation(*places)
    regrets = []  # excess time of the chosen layout, per model and network
    for group in sorted({(row["model"], row["on"]) for row in rows}):
        of = [row for row in rows if (row["model"], row["on"]) == group]
        chosen = min(of, key=lambda row: row["predicted"]["s"])
        regrets.append(chosen["measured_s"] / min(row["measured_s"] for row in of) - 1)
    return {"layouts": len(rows), "median_error": statistics.median(errors), "rank_correlation": correlation,
            "worst_regret": max(regrets), "median_memory_error": statistics.median(memory),
            "worst_memory_error": max(memory)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--networks", type=int, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=10,
                        help="at least, over all rounds; short ones go on for three seconds")
    parser.add_argument("--save", default="planner.json")
    asked = parser.parse_args()
    asked.save = pathlib.Path(asked.save).resolve()
    if asked.networks:
        network.enter()
    rows, files = [], {}

    def write():
        lines = ",\n".join(map(json.dumps, rows))
        asked.save.write_text(f'{{"clusters": {json.dumps(files, indent=1)},\n"rows": [\n{lines}\n]}}\n')

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)

        def measure(cases, on, name, hosts=None):
            clusters = calibrated(asked.programs, folder, name, 3 * asked.steps, hosts)
            files[on] = {name: path.read_text() for name, path in clusters.items()}
            mine = [{"model": model, "on": on, "mesh": case[0], "micro_batch": case[1], "more": case[2],
                     "predicted": predicted(asked.programs, folder, model, case, clusters[model])}
                    for model in MODELS for case in cases]
            rows.extend(mine)
            write()  # predictions are written before the runs
            steps, peaks = collections.defaultdict(list), collections.defaultdict(int)
            for _ in range(ROUNDS):
                for at, row in enumerate(mine):
                    count = max(asked.steps, min(60, int(3 / row["predicted"]["s"]))) // ROUNDS + 2
                    took, peak = ran(asked.programs, folder, row["model"], case_of(row), count, hosts)
                    steps[at] += took
                    peaks[at] = max(peaks[at], peak)
            for at, row in enumerate(mine):
                row["measured_s"], row["measured_bytes"] = statistics.median(steps[at]), peaks[at]
                case = case_of(row)
                print(f"{row['model']:9} {on:14} {'x'.join(map(str, case[0])):6} {case[1]:3} {case[2]:24}"
                      f" {1e3 * row['predicted']['s']:8.1f} {1e3 * row['measured_s']:8.1f} ms"
                      f" {100 * (row['predicted']['s'] / row['measured_s'] - 1):+6.1f} %"
                      f" {100 * (row['predicted']['bytes'] / row['measured_bytes'] - 1):+6.1f} %", flush=True)
            write()

        measure(THREADS, "threads", "threads")
        for megabits in asked.networks:
            with Hosts() as hosts:
                hosts.limit(megabits)
                measure(HOSTS, f"{megabits} Mbit/s", f"net{megabits}", hosts)
    for on in dict.fromkeys(row["on"] for row in rows):
        print(on, summary([row for row in rows if row["on"] == on]))
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
