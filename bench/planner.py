#!/usr/bin/env python3
"""Compares the planner's predictions with runs on this machine: step times and memory of layouts outside calibration.

planner.py PROGRAMS [--networks MEGABITS...] [--steps N] [--save FILE]

First dhp_doctor --calibrate measures the machine. One rank runs each model with two micro-batch sizes, which scales the
device rates to that model. Then all predictions are written to FILE, and only then the layouts run, as threads. With
--networks they also run as processes on two hosts, which are network namespaces of this machine whose links carry
MEGABITS a second (needs iproute2, and root or user namespaces). Prints a table and the planner's errors."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "processes"))
import network  # noqa: E402

SAMPLES = 32
MODELS = {"bert": ("train_bert", "--preset tiny --sequence-length 64 --vocabulary-size 4096"),
          "resnet50": ("train_resnet50", "--depth 14 --width 16 --image-size 32 --classes 10")}
COMMON = f"--data synthetic-resident --global-batch {SAMPLES}".split()
AXES = ("--data-parallel", "--tensor-parallel", "--pipeline-parallel")
CALIBRATES = (1, 16)  # micro-batch sizes of one rank
# Mesh, micro-batch, and further options.
THREADS = [(mesh, size, more) for mesh in ((2, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2))
           for size, more in ((2, ""), (8, ""))] + [
    ((1, 1, 1), 2, ""), ((1, 1, 1), 8, ""), ((1, 1, 1), 4, "--recompute"), ((2, 1, 1), 4, "--recompute"),
    ((2, 1, 1), 4, "--zero 2"), ((4, 1, 1), 4, "--zero 1"), ((1, 1, 2), 4, "--schedule zero-bubble"),
    ((1, 1, 2), 4, "--recompute")]
HOSTS = [((2, 1, 1), 8, ""), ((2, 1, 1), 2, ""), ((2, 1, 1), 4, "--zero 2"), ((1, 2, 1), 8, ""), ((1, 1, 2), 8, ""),
         ((1, 1, 2), 2, "")]


def options(model, case):
    mesh, size, more = case
    return [*MODELS[model][1].split(), *COMMON, *(word for pair in zip(AXES, map(str, mesh)) for word in pair),
            "--micro-batch", str(size), *more.split()]


def predicted(programs, folder, model, case, cluster):
    out = folder / "plan.json"
    fixed = [*options(model, case), *(["--zero", "0"] if "--zero" not in case[2] else []),
             *(["--recompute=false"] if "--recompute" not in case[2] else []),
             *(["--schedule", "1f1b"] if "--schedule" not in case[2] else [])]
    done = subprocess.run([programs / "dhp_plan", "--model", model, "--cluster", cluster, "--json", out, *fixed],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{model} {case}: {done.stderr}")
    found = json.loads(out.read_text())[0]
    return {"s": found["seconds"], "parts": found["parts"], "bytes": found["stage_bytes"][0]}


def ran(programs, folder, model, case, steps, hosts=None):
    """Returns the median seconds of a step, and rank 0's peak memory."""
    metrics = folder / "metrics.jsonl"
    command = [str(programs / MODELS[model][0]), *options(model, case), "--steps", str(steps), "--metrics", str(metrics),
               "--overwrite", "--evaluate-samples", str(case[1])]
    if hosts is None:
        subprocess.run(command, check=True, capture_output=True)
    else:
        hosts.run(command, 300)
    lines = [line for line in map(json.loads, metrics.read_text().splitlines()) if "loss" in line][2:]
    return (statistics.median(SAMPLES / line["samples_per_s"] for line in lines),
            max(line.get("peak_memory_bytes", 0) for line in lines))


def with_rates(text, slower, launch_us):
    """Returns the cluster's file with devices that are `slower` times slower and launches of launch_us."""
    text = re.sub(r"^(device.(?:tflops_\w+|gb_per_s)) = (.*)$",
                  lambda found: f"{found[1]} = {float(found[2]) / slower}", text, flags=re.M)
    return re.sub(r"^device.launch_us = .*$", f"device.launch_us = {launch_us}", text, flags=re.M)


def calibrated(programs, folder, name, steps, hosts=None):
    """Returns the doctor's file, and one for each model, whose rates and launch cost follow from two runs of one
    rank."""
    raw = folder / f"{name}.toml"
    if hosts is None:
        subprocess.run([programs / "dhp_doctor", "--ranks", "2", "--calibrate", raw], check=True, capture_output=True)
    else:
        hosts.run([str(programs / "dhp_doctor"), "--calibrate", str(raw)], 300)
        raw.write_text(re.sub(r"^(host.cores|host.devices) = .*$", r"\1 = 1", raw.read_text(), flags=re.M))
    made, text, trial = {}, raw.read_text(), folder / "trial.toml"
    for model in MODELS:
        took, work, launches = [], [], []
        for size in CALIBRATES:
            alone = ((1, 1, 1), size, "")
            took.append(ran(programs, folder, model, alone, steps)[0])
            trial.write_text(with_rates(text, 1, 0))
            work.append(predicted(programs, folder, model, alone, trial)["s"])
            trial.write_text(with_rates(text, 1, 1))
            launches.append(predicted(programs, folder, model, alone, trial)["s"] - work[-1])
        determinant = work[0] * launches[1] - work[1] * launches[0]
        slower = (took[0] * launches[1] - took[1] * launches[0]) / determinant
        launch_us = max(0, (work[0] * took[1] - work[1] * took[0]) / determinant)
        made[model] = folder / f"{name}_{model}.toml"
        made[model].write_text(with_rates(text, slower, launch_us))
        print(f"{model} {name}: devices {slower:.2f} times slower than the doctor says, {launch_us:.1f} us a launch")
    return raw, made


def ranked(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0] * len(values)
    for place, at in enumerate(order):
        places[at] = place
    return places


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
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--save", default="planner.json")
    parser.add_argument("--no-threads", action="store_true")
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
            raw, clusters = calibrated(asked.programs, folder, name, asked.steps, hosts)
            files[on] = raw.read_text()
            mine = [{"model": model, "on": on, "mesh": case[0], "micro_batch": case[1], "more": case[2],
                     "predicted": predicted(asked.programs, folder, model, case, clusters[model]),
                     "by_doctor_alone_s": predicted(asked.programs, folder, model, case, raw)["s"]}
                    for model in MODELS for case in cases]
            rows.extend(mine)
            write()  # predictions are written before the runs
            for row in mine:
                case = (row["mesh"], row["micro_batch"], row["more"])
                row["measured_s"], row["measured_bytes"] = ran(asked.programs, folder, row["model"], case, asked.steps, hosts)
                print(f"{row['model']:9} {on:14} {'x'.join(map(str, case[0])):6} {case[1]:3} {case[2]:24}"
                      f" {1e3 * row['predicted']['s']:8.1f} {1e3 * row['measured_s']:8.1f} ms"
                      f" {100 * (row['predicted']['s'] / row['measured_s'] - 1):+6.1f} %"
                      f" {100 * (row['predicted']['bytes'] / row['measured_bytes'] - 1):+6.1f} %", flush=True)
            write()

        if not asked.no_threads:
            measure(THREADS, "threads", "threads")
        for megabits in asked.networks:
            with network.Network(count=2) as hosts:
                hosts.limit(megabits)
                measure(HOSTS, f"{megabits} Mbit/s", f"net{megabits}", hosts)
    for on in dict.fromkeys(row["on"] for row in rows):
        print(on, summary([row for row in rows if row["on"] == on]))
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
