#!/usr/bin/env python3
"""curves.py TRAIN_BERT TRAIN_RESNET50: the summary of a run, the curves for TensorBoard, and the page of
examples/curves.awk. In the summary, the model's FLOP are the same in eight layouts, the parts add up to the wall time,
the utilization follows from them, and no line is longer than 80 columns. The curves of a resumed run have each step
once, with the values of the metrics. The package tensorboard reads them if Python has it."""

import json
import pathlib
import re
import struct
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import axes, ended, run, temporary_folder  # noqa: E402

AWK = pathlib.Path(__file__).resolve().parents[2] / "examples" / "curves.awk"
LAYOUTS = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (2, 2, 2)]
COMMON = ["--global-batch", "24", "--micro-batch", "2", "--samples", "100", "--evaluate-samples", "4",
          "--peak-tflops", "0.5"]
MODELS = {"bert": ["--preset", "tiny", "--sequence-length", "32", "--vocabulary-size", "256"],
          "resnet": ["--depth", "14", "--width", "8", "--image-size", "32", "--classes", "10"]}


def close(a, b, apart):
    return abs(a - b) <= apart * abs(b)


def summary_of(program, model, layout, more, folder):
    metrics = folder / f"{model}-{'x'.join(map(str, layout))}{''.join(more)}"
    begin = time.monotonic()
    done = ended(program, *MODELS[model], *COMMON, *axes(layout), *more, "--steps", "3", "--metrics", metrics)
    around_s = time.monotonic() - begin
    lines = done.stderr.splitlines()
    block = lines[next(at for at, line in enumerate(lines) if line.startswith("summary of steps 1 to 3")):]
    assert all(len(line) <= 80 for line in block), block
    found = json.loads(metrics.read_text().splitlines()[-1])
    assert found["step"] == 3 and found["summary"]["ranks"] == layout[0] * layout[1] * layout[2], found
    return found["summary"], around_s


def summaries(programs, folder):
    for model, program in programs.items():
        first = None
        runs = [(layout, ()) for layout in LAYOUTS] + [((1, 1, 2), ("--recompute",)), ((2, 1, 1), ("--zero", "3"))]
        for layout, more in runs:
            found, around_s = summary_of(program, model, layout, more, folder)
            what = f"{model} {layout} {more}: {found}"
            flop, ranks = found["model_flop_per_step"], found["ranks"]
            first = first or flop
            if flop != first:
                yield f"{what}: {flop} FLOP a step, alone {first}"
            parts = [found[f"{part}_s"] for part in ("compute", "communication", "pipeline", "data", "evaluation", "checkpoints",
                                                     "start_and_end")]
            if not close(sum(parts), found["wall_s"], 1e-9) or found["wall_s"] > around_s or min(parts) < 0:
                yield f"{what}: parts of {sum(parts)} s, around {around_s} s"
            steps_s = sum(parts[:4])
            if not close(found["model_flop_utilization"] * steps_s * ranks * 0.5e12, 3 * first, 1e-3):
                yield f"{what}: utilization"
            if (layout[2] > 1) != (found["pipeline_s"] > 0) or (ranks > 1) != (found["communication_s"] > 0):
                yield f"{what}: waits"
        print(f"{model}: {first:.6g} FLOP a step in {len(runs)} runs")


def fields(message):
    """The fields of a protocol buffer message, by number: lists of numbers and bytes."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value, bits = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 2: None, 5: 4}[key & 7] or varint()
            value, at = message[at:at + size], at + size
            value = struct.unpack("<d" if key & 7 == 1 else "<f", value)[0] if key & 7 in (1, 5) else value
        found.setdefault(key >> 3, []).append(value)
    return found


def shown(directory):
    """The scalars that TensorBoard shows, by (tag, step), from all files in order. A repeated scalar is an error."""
    scalars = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            event, at = fields(data[at + 12:at + 12 + size]), at + 16 + size
            step = event[2][0]
            if 7 in event:  # the start of a session log drops scalars from this step on
                scalars = {key: value for key, value in scalars.items() if key[1] < step}
            for value in fields(event[5][0])[1] if 5 in event else []:
                value = fields(value)
                if 2 in value:
                    key = (value[1][0].decode(), step)
                    assert key not in scalars, key
                    scalars[key] = value[2][0]
    return scalars


def curves(program, folder):
    """A run goes on from a checkpoint, twice, and has lost the steps after it. Only the first had an evaluation there."""
    save, tensorboard, metrics = folder / "save", folder / "curves", folder / "metrics"
    line = [program, *MODELS["bert"], *COMMON, "--evaluate-every", "2", "--save", save, "--save-every", "1", "--metrics",
            metrics, "--tensorboard", tensorboard]
    run(*line, "--steps", "5")
    metrics.write_text(metrics.read_text().replace("\n", "\n{damaged\n", 1))  # the lines after this one stay, too
    run(*line, "--steps", "6", "--load", save / "step-00000004")
    run(*line, "--steps", "7", "--load", save / "step-00000005")
    wanted = {}
    for entry in map(json.loads, metrics.read_text().replace("{damaged\n", "").splitlines()):
        if "summary" in entry:
            continue
        for name, value in entry.items():
            tag = name.replace("held_out_", "held_out/") if name.startswith("held_out_") else f"train/{name}"
            if name != "step":
                wanted[tag, entry["step"]] = struct.unpack("<f", struct.pack("<f", value))[0]
    found = {key: value for key, value in shown(tensorboard).items() if key[0] != "train/tokens_per_s"}
    before = metrics.read_text()
    run(program, *MODELS["bert"], *COMMON, "--load", save / "step-00000003", "--evaluate-only", "--metrics", metrics)
    if not metrics.read_text().startswith(before):
        yield "curves: an evaluation alone has removed lines of the metrics"
    of_speed = ("train/samples_per_s", "train/peak_memory_bytes")
    if found.keys() != wanted.keys():
        yield f"curves: {sorted(found.keys() ^ wanted.keys())}"
    for key in found.keys() & wanted.keys():
        if key[0] not in of_speed and found[key] != wanted[key]:
            yield f"curves: {key}: {found[key]} and in the metrics {wanted[key]}"
    print(f"curves: {len(found)} values in {len(list(tensorboard.iterdir()))} files")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return print("skipped: Python has no tensorboard to read them with")
    events = EventAccumulator(str(tensorboard), {"scalars": 0})
    events.Reload()
    read = {(tag, one.step): one.value for tag in events.Tags()["scalars"] for one in events.Scalars(tag)}
    if {key: value for key, value in read.items() if key[0] != "train/tokens_per_s"} != found:
        yield f"tensorboard reads something else: {read}"
    print(f"tensorboard reads the same {len(read)} values")


def page(folder):
    """On the page of examples/curves.awk, runs have their paths as names, step numbers stand at their steps, and losses
    fit beside the plot. A single evaluation is drawn, too."""
    runs = {"one/m.jsonl": [{"step": step, "loss": loss} for step, loss in ((1, 7), (2, 5), (6, 8e8))],
            "two/m.jsonl": [{"step": step, "loss": 9 - step} for step in (1, 2)], "lr1=a&b.jsonl": [{"step": 4, "held_out_loss": 3}]}
    for name, lines in runs.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    made = subprocess.run(["awk", "-f", AWK, *runs], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    if (names := re.findall("<h2>(.*)</h2>", made)) != ["one/m", "two/m", "lr1=a&amp;b"]:
        yield f"page: names {names}"
    wanted = [(round(50 + 630 * step / last, 1), step) for last, steps in ((6, (0, 1, 3, 4, 6)), (2, (0, 1, 2)), (4, range(5))) for step in steps]
    ticks = [(float(x), int(step)) for x, step in re.findall("<text x='([0-9.]+)' y='298'[^>]*>([0-9]+)<", made)]
    if ticks != wanted:
        yield f"page: steps {ticks}"
    if long := [text for text in re.findall("text-anchor='end'>([0-9.e+]+)<", made) if len(text) > 6]:
        yield f"page: numbers of a loss {long}"
    if made.count("<circle") != 1:
        yield "page: the evaluation is not drawn"
    (folder / "empty.jsonl").touch()
    empty = subprocess.run(["awk", "-f", AWK, "empty.jsonl"], cwd=folder, capture_output=True, text=True)
    if empty.returncode != 1 or empty.stdout or "no file has a loss" not in empty.stderr:
        yield f"page: of no losses {empty}"


def main():
    programs = {name: str(pathlib.Path(path).resolve()) for name, path in zip(("bert", "resnet"), sys.argv[1:])}
    with temporary_folder() as folder:
        wrong = [*summaries(programs, folder), *curves(programs["bert"], folder), *page(folder)]
    print(*wrong, sep="\n", end="")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
