#!/usr/bin/env python3
"""plot.py RUN...: draws loss, throughput and what the time went to, of one or several runs, from their files of --metrics.
Needs matplotlib (Debian: python3-matplotlib)."""

import argparse
import json
import pathlib
import sys

PARTS = [("compute_s", "compute"), ("communication_s", "communication, exposed"), ("pipeline_s", "other stages, waited for"),
         ("data_s", "data"), ("evaluation_s", "evaluation"), ("checkpoints_s", "checkpoints"), ("start_and_end_s", "start and end")]


def read(path):
    """The steps, the evaluations and the summary (or None) of a run; of a line that is cut off nothing."""
    steps, evaluations, summary = [], [], None
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
            entry["step"]
        except (ValueError, TypeError, KeyError):
            sys.exit(f"error: {path}, line {number}, is no line of a metrics file, as --metrics writes it")
        if "loss" in entry:
            steps.append(entry)
        elif "summary" in entry:
            summary = entry["summary"]
        else:
            evaluations.append(entry)
    if not steps:
        sys.exit(f"error: {path} has no steps")
    return steps, evaluations, summary


def smoothed(values, width):
    """Each with the mean of those before it, so many."""
    made, total = [], 0.0
    for at, value in enumerate(values):
        total += value - (values[at - width] if at >= width else 0)
        made.append(total / min(at + 1, width))
    return made


def numbers(entries, name):
    """Steps and values of the entries that have a finite number of this name: JSON has null for the others."""
    found = [(entry["step"], entry[name]) for entry in entries if isinstance(entry.get(name), (int, float))]
    return [step for step, _ in found], [value for _, value in found]


def held_out_loss(evaluations):
    """Its name among the evaluations' fields; None without evaluations."""
    names = {name for entry in evaluations for name in entry}
    return next((name for name in ("held_out_loss", "held_out_masked_loss") if name in names), None)


def draw(plt, runs, output):
    summaries = [(name, summary) for name, (_, _, summary) in runs.items() if summary]
    height = 3.2 + 3.2 + (1.2 + 0.45 * len(summaries) if summaries else 0)
    figure, axes = plt.subplots(3 if summaries else 2, 1, figsize=(9, height), layout="constrained",
                                height_ratios=[3.2, 3.2] + ([1.2 + 0.45 * len(summaries)] if summaries else []))
    loss, speed = axes[0], axes[1]
    for number, (name, (steps, evaluations, _)) in enumerate(runs.items()):
        color = f"C{number % 10}"
        at, values = numbers(steps, "loss")
        width = max(1, len(values) // 50)
        if width > 1:
            loss.plot(at, values, color=color, alpha=0.25, linewidth=0.8)
        loss.plot(at, smoothed(values, width), color=color, label=name)
        measure = held_out_loss(evaluations)
        if measure:
            loss.plot(*numbers(evaluations, measure), color=color, marker="o", markersize=4, linestyle="--", linewidth=1,
                      label=f"{name}, held out" + ("" if measure == "held_out_loss" else " (masked tokens)"))
        at, values = numbers(steps, "samples_per_s")
        speed.plot(at, smoothed(values, width), color=color, label=name)
    loss.set(ylabel="loss", xlabel="step")
    loss.legend(fontsize="small")
    speed.set(ylabel="samples/s", xlabel="step", ylim=(0, None))
    for axis in (loss, speed):
        axis.grid(alpha=0.3)
    if summaries:
        draw_parts(axes[2], summaries)
    figure.savefig(output, dpi=130)


def draw_parts(axis, summaries):
    """One bar a run, of the shares of its wall time."""
    left = [0.0] * len(summaries)
    rows = range(len(summaries))
    for number, (key, label) in enumerate(PARTS):
        shares = [100 * summary.get(key, 0) / summary["wall_s"] for _, summary in summaries]
        axis.barh(rows, shares, left=left, height=0.6, color=f"C{number}", label=label)
        left = [before + share for before, share in zip(left, shares)]
    axis.set_yticks(rows, [f"{name}, {summary['wall_s']:.4g} s" for name, summary in summaries])
    axis.invert_yaxis()
    axis.set(xlabel="% of the wall time", xlim=(0, 100))
    axis.legend(ncols=4, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.45))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", help="a file of --metrics")
    parser.add_argument("--output", default="plot.png", help="PNG, PDF or SVG (default: plot.png)")
    asked = parser.parse_args()
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        sys.exit("error: matplotlib is missing (Debian: python3-matplotlib; or pip install matplotlib)")
    runs = {}
    for path in asked.run:
        name = pathlib.Path(path).stem
        try:
            runs[path if name in runs else name] = read(path)
        except OSError as error:
            sys.exit(f"error: {path}: {error.strerror}")
    draw(plt, runs, asked.output)
    print(f"wrote {asked.output}")


if __name__ == "__main__":
    main()
