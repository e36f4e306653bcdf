#!/usr/bin/env python3
"""draw.py PROGRAMS OUTPUT: draws the pages' pictures as SVG files in the folder OUTPUT, from the output of the lessons
and trainers in the folder PROGRAMS. Needs matplotlib (Debian: python3-matplotlib).

Planned and counted pictures are the same in every run; --check compares them with those in OUTPUT, byte for byte.
Measured ones, drawn from traces and metrics, are different each time; --check only draws them, from short runs."""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from canvas import (BACKWARD, D, EXCHANGE, FORWARD, GRAY, H, INK, KINDS, LINES, MEMORY, P, SECOND_PART, WEIGHTS, WHOLE,
                    WIDTH, Missing, arrow, boxes, canvas, charts, key, legend_below, made_by, matplotlib, save, write)

class Programs:
    """Runs the programs. traces: a folder of existing traces to draw, or None. short: keeps the runs short."""

    def __init__(self, folder, traces, scratch, short):
        self.folder, self.traces = pathlib.Path(folder).resolve(), traces
        self.scratch, self.short = pathlib.Path(scratch), short

    def run(self, name, options="", fails=False):
        """Returns the program's output. fails: the program has to end with an error."""
        program = self.folder / name
        if not program.exists():
            raise Missing(f"{name} is not built in {self.folder}")
        done = subprocess.run([program, *options.split()], capture_output=True, text=True, timeout=300, cwd=self.scratch,
                              check=False)
        if (done.returncode != 0) != fails:
            sys.exit(f"error: {name} {options} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def trace(self, name, options):
        """Returns the spans of the trace of this name; without one, runs train_bert."""
        path = (self.traces or self.scratch) / f"{name}.json"
        if not path.exists():
            self.run("train_bert", f"{options} --held-out 0 --trace {name}.json")
            path = self.scratch / path.name
        return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]

    def losses(self, options):
        """Runs train_bert and returns the loss of each step."""
        self.run("train_bert", f"{options} --held-out 0 --metrics metrics.jsonl --overwrite")
        entries = map(json.loads, (self.scratch / "metrics.jsonl").read_text().splitlines())
        return [entry["loss"] for entry in entries if "loss" in entry]


# The axes.

def mesh(plt, _):
    """Eight ranks, two on each axis: the tensor axis runs fastest, then data, then pipeline."""
    figure, axis = canvas(plt, 222)

    def place(tensor, data, pipeline):
        return 36 + 130 * pipeline + 56 * tensor, 62 + 116 * data - 36 * tensor

    spots = {tensor + 2 * data + 4 * pipeline: (tensor, data, pipeline)
             for tensor in range(2) for data in range(2) for pipeline in range(2)}
    for at in spots.values():
        for which, color in enumerate((H, D, P)):
            if at[which] == 0:
                other = tuple(1 if number == which else value for number, value in enumerate(at))
                axis.plot(*zip(place(*at), place(*other)), color=color, linewidth=3, zorder=1, solid_capstyle="butt")
    for rank, at in spots.items():
        axis.plot(*place(*at), marker="o", markersize=21, color=WHOLE, markeredgecolor=INK, markeredgewidth=0.8)
        write(axis, *place(*at), rank, size=10.5, color=INK, ha="center")
    for y, color, letter, name, words in ((40, H, "H", "tensor", ("its ranks share each layer", "and are neighbors")),
                                          (106, D, "D", "data", ("its ranks have other samples", "and the same weights")),
                                          (172, P, "P", "pipeline", ("its ranks have other layers", "and the same samples"))):
        axis.plot((250, 270), (y, y), color=color, linewidth=3)
        write(axis, 277, y, f"{letter}, {name} axis", size=10.5, weight="bold")
        for line, text in enumerate(words):
            write(axis, 277, y + 15 + 13 * line, text)
    return figure


def weight_split(plt, _):
    """Lesson 6: the first layer cut by columns, the second by rows. Its sizes are read from its source."""
    source = (pathlib.Path(__file__).parents[2] / "examples/lessons/6_tensor_by_hand.cpp").read_text()
    size = {name: int(re.search(rf"\b{name} = (\d+)", source)[1]) for name in ("samples", "inputs", "hidden", "outputs")}
    figure, axis = canvas(plt, 214)
    cell, ranks = 12.6, (H, "#8fd6cc")

    def matrix(x, middle, rows, columns, name, color_of):
        """Returns the x of its right edge."""
        top = middle - rows * cell / 2
        for color in dict.fromkeys(color_of(row, column) for row in range(rows) for column in range(columns)):
            boxes(axis, ((x + column * cell, top + row * cell, cell, cell) for row in range(rows) for column in range(columns)
                         if color_of(row, column) == color), color)
        write(axis, x + columns * cell / 2, top - 18, name, size=11, ha="center", weight="bold")
        write(axis, x + columns * cell / 2, top - 6, f"{rows} x {columns}", size=8, ha="center")
        return x + columns * cell

    half = size["hidden"] // 2
    middle = 92
    x = matrix(6, middle, size["samples"], size["inputs"], "x", lambda row, column: WHOLE)
    write(axis, x + 9, middle, "·", size=14, ha="center")
    x = matrix(x + 18, middle, size["inputs"], size["hidden"], "A, by columns", lambda row, column: ranks[column >= half])
    write(axis, x + 11, middle, "→", size=12, ha="center")
    write(axis, x + 11, middle - 12, "gelu", size=8, ha="center")
    x = matrix(x + 22, middle, size["samples"], size["hidden"], "h, by columns", lambda row, column: ranks[column >= half])
    write(axis, x + 9, middle, "·", size=14, ha="center")
    x = matrix(x + 18, middle, size["hidden"], size["outputs"], "B, by rows", lambda row, column: ranks[row >= half])
    write(axis, x + 12, middle, "→", size=12, ha="center")
    write(axis, x + 12, middle - 12, "sum", size=8, ha="center")
    matrix(x + 24, middle, size["samples"], size["outputs"], "y", lambda row, column: WHOLE)
    key(axis, 6, 164, ((ranks[0], "held by rank 0"), (ranks[1], "held by rank 1"), (WHOLE, "on both")))
    write(axis, 6, 185, "Each rank multiplies what it holds. Its half of h needs only its half of B.")
    write(axis, 6, 200, "One all-reduce sums the two parts of y; backward, another those of dx.")
    return figure


def all_reduce(plt, _):
    """The all-reduce of three ranks, in its two phases."""
    figure, axis = canvas(plt, 168)
    before = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    total = [sum(column) for column in zip(*before)]
    scattered = [[total[at] if at == rank else "" for at in range(3)] for rank in range(3)]
    width, height = 25, 24
    shade = [D, "#eb9fae", "#f5ccd4"]
    left = (48, 178, 308)
    names = ("each rank's array", "one n-th of the sum", "the whole sum")
    for x, name, rows in zip(left, names, (before, scattered, [total] * 3)):
        write(axis, x + 1.5 * width, 12, name, ha="center")
        for rank, row in enumerate(rows):
            y = 26 + 36 * rank
            for at, value in enumerate(row):
                color = "none" if value == "" else (WHOLE if rows is before else shade[at])
                boxes(axis, [(x + at * width, y, width, height)], color, GRAY if value == "" else INK)
                if value != "":
                    write(axis, x + (at + 0.5) * width, y + height / 2, value, size=10.5, color=INK, ha="center")
    for rank in range(3):
        write(axis, 4, 38 + 36 * rank, f"rank {rank}")
    for x, name in ((left[0] + 75, "reduce-\nscatter"), (left[1] + 75, "all-\ngather")):
        arrow(axis, (x + 8, 74), (x + 47, 74))
        write(axis, x + 27, 53, name, size=8.5, ha="center", va="center")
    write(axis, 4, 152, "In each phase a rank sends and receives (n - 1) / n of its S bytes.")
    return figure


# Schedules, as planned and as measured.

def planned(programs):
    """Returns for each schedule a list of boxes (start, duration, kind, micro-batch, part of the model) per stage, and
    the idle share. A unit of time is the forward pass of a whole stage."""
    found, name = {}, None
    for line in programs.run("lesson_9_schedules").splitlines():
        row = re.fullmatch(r"stage \d+ \| (.*) \| idle (\d+) %", line)
        if not row:
            name = line
            continue
        cells = [(cell.start(), cell[0]) for cell in re.finditer(r"\.|[FBW]\d+[a-z]?-*", row[1])]
        width = min(after[0] - before[0] for before, after in zip(cells, cells[1:]))
        chunks = 2 if re.search(r"\d[a-z]", row[1]) else 1
        stage = []
        for start, words in cells:
            kind, micro_batch, part, more = re.fullmatch(r"(.)(\d*)([a-z]?)(-*)", words).groups()
            if kind != ".":
                slots = round((len(words) + 1) / width) if more else 1
                stage.append((start / width / chunks, slots / chunks, kind, micro_batch, part))
        found.setdefault(name, ([], row[2]))[0].append(stage)
    return found


def draw_stages(axis, left, top, unit, stages, row=22, labels=True, names=True):
    """Draws one row per stage, with `unit` points for a unit of time. Returns the x where the longest row ends."""
    end = max(start + duration for stage in stages for start, duration, *_ in stage)
    boxes(axis, ((left, top + row * number, unit * end, row - 4) for number in range(len(stages))), "none", GRAY)
    for kind, part in sorted({(box[2], box[4]) for stage in stages for box in stage}):
        color = SECOND_PART[kind] if part == "b" else KINDS[kind]
        boxes(axis, ((left + unit * start, top + row * number, unit * duration, row - 4) for number, stage in enumerate(stages)
                     for start, duration, *what in stage if (what[0], what[2]) == (kind, part)), color)
    for number, stage in enumerate(stages):
        middle = top + row * number + (row - 4) / 2
        if names:
            write(axis, left - 6, middle, f"stage {number}", ha="right")
        for start, duration, _, micro_batch, _ in stage if labels else []:
            if unit * duration > 6:
                write(axis, left + unit * (start + duration / 2), middle, micro_batch, size=8, color=INK, ha="center")
    return left + unit * end


def kinds_key(axis, x, y, stages):
    kinds = {box[2] for stage in stages for box in stage}
    parts = any(box[4] for stage in stages for box in stage)
    words = [("F", "forward"), ("B", "backward" if "W" not in kinds else "input"), ("W", "weights")]
    entries = [(KINDS[kind], f"{kind} {name}") for kind, name in words if kind in kinds]
    if parts:
        entries = [(colors[kind], kind + name) for kind, _ in words if kind in kinds
                   for colors, name in ((KINDS, ""), (SECOND_PART, ", b" if "W" in kinds else ", part b"))]
    key(axis, x, y, entries + [("none", "idle")])
    write(axis, WIDTH - 6, y, "number: micro-batch", size=8, ha="right")


def schedule_zero_bubble_v(plt, programs):
    """One schedule, large."""
    stages, idle = planned(programs)["zero-bubble-v"]
    end = max(start + duration for stage in stages for start, duration, *_ in stage)
    figure, axis = canvas(plt, 112)
    draw_stages(axis, 46, 22, (WIDTH - 52) / end, stages)
    write(axis, 46, 10, "zero-bubble-v", size=10.5, weight="bold")
    write(axis, WIDTH - 6, 10, f"idle {idle} %", ha="right")
    kinds_key(axis, 46, 100, stages)
    return figure


def schedules(plt, programs):
    """All schedules on the same scale."""
    found = planned(programs)
    end = max(start + duration for stages, _ in found.values() for stage in stages for start, duration, *_ in stage)
    figure, axis = canvas(plt, 58 * len(found) + 26)
    for number, (name, (stages, idle)) in enumerate(found.items()):
        top = 58 * number + 16
        behind = draw_stages(axis, 6, top, (WIDTH - 12) / end, stages, row=13, labels=False, names=False)
        write(axis, 6, top - 8, name, size=9.5, weight="bold")
        write(axis, max(behind, 170), top - 8, f"idle {idle} %", ha="right")
    key(axis, 6, 58 * len(found) + 14, ((FORWARD, "F"), (BACKWARD, "B"), (WEIGHTS, "W"), (SECOND_PART["F"], "F, part b"),
                                        (SECOND_PART["B"], "B, part b"), (SECOND_PART["W"], "W, part b"), ("none", "idle")))
    return figure


def steps_of(spans):
    """Yields (seconds, spans by rank with times from its start) of each step except the first, which allocates."""
    for name in sorted({span["name"] for span in spans if re.fullmatch(r"step \d+", span["name"])} - {"step 1"}):
        whole = {span["pid"]: span for span in spans if span["name"] == name}
        first = min(span["ts"] for span in whole.values())
        inside = {rank: [] for rank in sorted(whole)}
        for span in spans:
            step = whole[span["pid"]]
            if step["ts"] <= span["ts"] < step["ts"] + step["dur"] and span is not step:
                start = (span["ts"] - first) / 1e6
                inside[span["pid"]].append({**span, "start": start, "end": start + span["dur"] / 1e6})
        yield max(step["ts"] + step["dur"] - first for step in whole.values()) / 1e6, inside


def working(span, spans):
    """Yields the (start, end) of the parts of a span of work between its waits."""
    at = span["start"]
    for wait in sorted((wait for wait in spans if wait["cat"] == "exposed"), key=lambda wait: wait["start"]):
        if span["start"] <= wait["start"] < span["end"]:
            if wait["start"] > at:
                yield at, wait["start"]
            at = max(at, wait["end"])
    if span["end"] > at:
        yield at, span["end"]


PASSES = {"forward": "F", "backward": "B", "weight gradients": "W"}


def passes(spans, longest_s=1e-4):
    """Yields (start, duration, kind, micro-batch, part) of a rank's passes, without pieces of longest_s or less."""
    for span in spans:
        name = re.fullmatch(r"(forward|backward|weight gradients) (\d+)", span["name"])
        if name and span["cat"] == "work":
            for start, end in working(span, spans):
                if end - start > longest_s:
                    yield start, end - start, PASSES[name[1]], name[2], ""


def schedule_measured(plt, programs):
    """1F1B as planned, and the fastest step of a run, with as many stages and micro-batches, on the same scale."""
    plan, idle = planned(programs)["1f1b"]
    count, batches = len(plan), len({box[3] for box in plan[0]})
    size = "tiny --steps 3 --sequence-length 32" if programs.short else "mini --steps 60 --sequence-length 64"
    spans = programs.trace("1f1b", f"--preset {size} --layout padded --samples {40 * batches} --global-batch {4 * batches} "
                                   f"--micro-batch 4 --pipeline-parallel {count} --schedule 1f1b")
    measured = min(([list(passes(spans)) for spans in step.values()] for _, step in steps_of(spans)),
                   key=lambda stages: max(start + duration for stage in stages for start, duration, *_ in stage))
    slots = sum(duration for stage in plan for _, duration, *_ in stage)
    busy = sum(duration for stage in measured for _, duration, *_ in stage)
    measured = [[(start / busy * slots, duration / busy * slots, *what) for start, duration, *what in stage]
                for stage in measured]
    end, planned_end = (max(box[0] + box[1] for stage in stages for box in stage) for stages in (measured, plan))
    figure, axis = canvas(plt, 216)
    unit = (WIDTH - 52) / max(end, planned_end)
    for top, name, stages, words in ((22, "1f1b, as planned", plan, f"idle {idle} %"),
                                     (112, "1f1b, as measured", measured, f"idle {100 * (1 - slots / count / end):.0f} %")):
        write(axis, 46, top - 12, name, size=10.5, weight="bold")
        write(axis, WIDTH - 6, top - 12, words, ha="right")
        draw_stages(axis, 46, top, unit, stages)
    milliseconds = 1000 * busy / slots
    step = next(step for power in range(-2, 5) for step in (10 ** power, 2 * 10 ** power, 5 * 10 ** power)
                if step / milliseconds * unit > 40)
    ticks = [at * step for at in range(int(end * milliseconds / step) + 1)]
    for tick in ticks:
        x = 46 + unit * tick / milliseconds
        axis.plot((x, x), (178, 182), color=GRAY, linewidth=0.8)
        write(axis, x, 189, f"{tick:g}" + (" ms" if tick == ticks[-1] else ""), size=8, ha="center")
    kinds_key(axis, 46, 206, plan)
    return figure


def overlap_measured(plt, programs):
    """The fastest step of two replicas with each reducer: the last backward pass and its all-reduces."""
    size = "tiny --steps 3 --bucket-mb 0.2" if programs.short else "small --steps 20 --bucket-mb 8"
    figure, axis = canvas(plt, 168)
    found = {}
    for reducer in ("plain", "bucketed"):
        spans = programs.trace(reducer, f"--preset {size} --sequence-length 16 --layout padded --samples 256 --global-batch 8 "
                                        f"--micro-batch 4 --data-parallel 2 --reducer {reducer}")
        seconds, step = min(steps_of(spans), key=lambda step: step[0])
        found[reducer] = (seconds, step[0])
    unit = (WIDTH - 88) / max(seconds for seconds, _ in found.values())
    for number, (reducer, (seconds, spans)) in enumerate(found.items()):
        top, left = 24 + 66 * number, 82
        sums = [span for span in spans if span["name"] == "all_reduce" and span["args"]["at"].startswith("reducer.hpp")]
        update = [span for span in spans if span["name"].startswith("optimizer") and span["cat"] == "work"]
        write(axis, 4, top - 11, reducer, size=10.5, weight="bold")
        write(axis, WIDTH - 6, top - 11, f"{1000 * seconds:.0f} ms", ha="right")
        for row, words in enumerate(("computes", "all-reduces")):
            write(axis, left - 6, top + 22 * row + 9, words, ha="right")
        boxes(axis, ((left, top + 22 * row, unit * seconds, 18) for row in range(2)), "none", GRAY)
        for kind, color in KINDS.items():
            boxes(axis, ((left + unit * start, top, unit * duration, 18)
                         for start, duration, what, *_ in passes(spans) if what == kind), color)
        boxes(axis, ((left + unit * start, top, unit * (end - start), 18)
                     for span in update for start, end in working(span, spans)), WEIGHTS)
        boxes(axis, ((left + unit * span["start"], top + 22, unit * (span["end"] - span["start"]), 18) for span in sums),
              EXCHANGE)
    key(axis, 4, 157, ((FORWARD, "forward"), (BACKWARD, "backward"), (EXCHANGE, "all-reduce"), (WEIGHTS, "update"),
                       ("none", "waits")))
    return figure


# Bytes and memory.

def bytes_per_axis(plt, programs):
    """Lesson 10's counts."""
    lines, stage = [], None
    for line in programs.run("lesson_10_all_three").splitlines():
        stage = line if re.fullmatch(r"stage \d+", line) else stage
        row = re.fullmatch(r" +(data|tensor|pipeline) axis: (.*?) +(\d+) +(\d+)", line)
        if row and not row[2].endswith("(calls)"):
            lines.append((stage, *row.groups()[:2], int(row[3])))
    figure, axis = canvas(plt, 16 * len(lines) + 60)
    unit = (WIDTH - 210) / max(line[3] for line in lines)
    y, stage = 12, None
    for at, name, words, count in lines:
        if at != stage:
            y += 6 if stage else 0
            write(axis, 4, y, f"a rank of {at}, bytes per step", size=9.5, weight="bold")
            stage, y = at, y + 17
        write(axis, 156, y, f"{name}: {words}", ha="right", size=8.5)
        boxes(axis, [(162, y - 6, unit * count, 12)], {"data": D, "tensor": H, "pipeline": P}[name])
        write(axis, 168 + unit * count, y, f"{count:,}", size=8.5)
        y += 16
    return figure


def zero_memory(plt, programs):
    """The planned memory of a rank of BERT base, from the error of a trainer with too low a limit."""
    figure, axis = canvas(plt, 176)
    found = {}
    for stage in range(4):
        words = programs.run("train_bert", "--preset base --data-parallel 4 --sequence-length 128 --global-batch 32 "
                                           f"--micro-batch 8 --steps 1 --memory-limit 0.001 --zero {stage}", fails=True)
        scale = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
        parts = re.search(r" takes [\d.]+ .B \((.*?)\), but has", words)[1]
        found[stage] = {name: float(value) * scale[size] for name, value, size in re.findall(r"(\w+) ([\d.]+) (.B)", parts)}
    unit = (WIDTH - 100) / max(sum(parts.values()) for parts in found.values())
    write(axis, 4, 11, "Memory of one of 4 replicas, BERT base, fp32, AdamW", size=9.5, weight="bold")
    for stage, parts in found.items():
        y, x = 28 + 30 * stage, 54
        write(axis, 4, y + 10, f"ZeRO {stage}")
        for name, color in MEMORY.items():
            width = unit * parts[name]
            boxes(axis, [(x, y, width, 20)], color)
            if width > 14:
                write(axis, x + width / 2, y + 10, f"{parts[name] / 1e6:.0f}", size=8.5, color=INK, ha="center")
            x += width
        write(axis, x + 6, y + 10, f"{sum(parts.values()) / 1e9:.2f} GB", size=8.5)
    key(axis, 4, 163, [(color, name) for name, color in MEMORY.items()])
    write(axis, WIDTH - 6, 163, "in MB", ha="right")
    return figure


# Losses.

def loss_layouts(plt, programs):
    """The same training in several layouts, and the difference from one rank."""
    steps = 4 if programs.short else 150
    layouts = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 2))[:2 if programs.short else 5]
    losses = {layout: programs.losses(f"--steps {steps} --lr 0.002 --warmup {steps // 5} --sequence-length 32 "
                                      "--global-batch 64 --micro-batch 16 --data-parallel {} --tensor-parallel {} "
                                      "--pipeline-parallel {}".format(*layout)) for layout in layouts}
    figure, (above, below) = charts(plt, 2, 330)
    for number, (layout, values) in enumerate(losses.items()):
        at, name = range(1, steps + 1), "x".join(map(str, layout))
        above.plot(at, values, color=LINES[number], linewidth=5.5 - number, label=name)
        if number:
            below.plot(at, [max(1e-9, abs(value - first)) for value, first in zip(values, losses[layouts[0]])],
                       color=LINES[number], linewidth=1.1)
    above.set(ylabel="loss")
    below.set(ylabel="difference from 1x1x1", xlabel="step", yscale="log")
    legend_below(below, above, ncols=5, title="D x H x P")
    return figure


def curves(table):
    """Loss against samples and against bytes, from {"cases": {NAME: {"samples": [...], "bytes": [...], "loss": [...]}}}."""
    def draw(plt, _):
        try:
            cases = json.loads(table.read_text())["cases"]
            equal = all(len(case["samples"]) == len(case["bytes"]) == len(case["loss"]) > 0 for case in cases.values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            equal = False
        if not equal or not cases:
            sys.exit(f"error: {table} is no table of cases, each with samples, bytes and loss of the same length")
        figure, axes = charts(plt, 2, 340)
        for axis, unit, words in zip(axes, ("samples", "bytes"), ("samples", "bytes sent by a rank")):
            for number, (name, case) in enumerate(cases.items()):
                axis.plot(case[unit], case["loss"], color=LINES[number % len(LINES)], linewidth=1.5, label=name,
                          linestyle="-" if number < len(LINES) else "--")
            axis.set(ylabel="loss", xlabel=words)
        if min((count for case in cases.values() for count in case["bytes"]), default=0) > 0:
            axes[1].set_xscale("log")
        legend_below(axes[1], axes[0], ncols=2)
        return figure
    return draw


SAME = {"mesh": mesh, "weight_split": weight_split, "all_reduce": all_reduce, "schedules": schedules,
        "schedule_zero_bubble_v": schedule_zero_bubble_v, "bytes_per_axis": bytes_per_axis, "zero_memory": zero_memory}
MEASURED = {"schedule_measured": schedule_measured, "overlap_measured": overlap_measured, "loss_layouts": loss_layouts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", help="folder of built lessons and trainers")
    parser.add_argument("output", type=pathlib.Path, help="folder of the pictures")
    parser.add_argument("--only", metavar="NAME", action="append", help=f"one of {', '.join([*SAME, *MEASURED])}")
    parser.add_argument("--curves", metavar="FILE.json", type=pathlib.Path, action="append", default=[],
                        help="draws loss against samples and bytes of a table; the picture has the table's name")
    parser.add_argument("--traces", metavar="FOLDER", type=pathlib.Path,
                        help="has 1f1b.json, plain.json or bucketed.json, traces to draw instead of train_bert's")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing to OUTPUT; 77: something is missing")
    asked = parser.parse_args()
    pictures = {**SAME, **MEASURED, **{path.stem: curves(path) for path in asked.curves}}
    names = asked.only or ([] if asked.curves and not asked.check else [*SAME, *MEASURED])
    if unknown := set(names) - set(pictures):
        sys.exit(f"error: there is no picture {', '.join(sorted(unknown))}; there are {', '.join(pictures)}")
    names += [path.stem for path in asked.curves]
    wrong = []
    try:
        plt = matplotlib()
        with tempfile.TemporaryDirectory() as scratch:
            programs = Programs(asked.programs, asked.traces, scratch, asked.check)
            folder = pathlib.Path(scratch) if asked.check else asked.output
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                figure = pictures[name](plt, programs)
                path, kept = folder / f"{name}.svg", asked.output / f"{name}.svg"
                save(plt, figure, path)
                print(f"{name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
                if asked.check and name not in MEASURED and path.read_bytes() != (kept.read_bytes() if kept.exists() else b""):
                    if made_by(kept) not in (None, made_by(path)):
                        raise Missing(f"{kept} was drawn by matplotlib {made_by(kept)}, and this is {made_by(path)}")
                    wrong.append(f"{kept} is not what the programs say; to draw it: {sys.argv[0]} {asked.programs} "
                                 f"{asked.output} --only {name}")
    except Missing as missing:
        print(f"{'skipped' if asked.check else 'error'}: {missing}")
        sys.exit(77 if asked.check else 1)
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
