#!/usr/bin/env python3
"""curves.py TRAIN_BERT: the curves for TensorBoard, over a run that went on: each step once, with the metrics' values; the package
tensorboard reads them, where Python has it. No line of the run's summary is longer than 80 columns."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

OPTIONS = ["--global-batch", "24", "--micro-batch", "2", "--samples", "100", "--evaluate-samples", "4", "--peak-tflops", "0.5",
           "--preset", "tiny", "--sequence-length", "32", "--vocabulary-size", "256", "--evaluate-every", "1", "--save-every", "1"]


def fields(message):
    """Of a protocol buffer's message, by number: lists of numbers and bytes."""
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
    """The scalars that TensorBoard shows, by (tag, step); twice the same is an error. The files one after the other."""
    scalars = {}
    for path in sorted(directory.glob("events.out.tfevents.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = struct.unpack_from("<Q", data, at)[0]
            event, at = fields(data[at + 12:at + 12 + size]), at + 16 + size
            step = event[2][0]
            if 7 in event:  # a session log that starts: what is there from this step on goes
                scalars = {key: value for key, value in scalars.items() if key[1] < step}
            for value in fields(event[5][0])[1] if 5 in event else []:
                value = fields(value)
                if 2 in value:
                    key = (value[1][0].decode(), step)
                    assert key not in scalars, key
                    scalars[key] = value[2][0]
    return scalars


def curves(program, folder):
    """A run that lost the steps after a checkpoint goes on."""
    save, tensorboard, metrics = folder / "save", folder / "curves", folder / "metrics"
    line = [program, *OPTIONS, "--save", save, "--metrics", metrics, "--tensorboard", tensorboard, "--steps"]
    for more in (["5"], ["6", "--load", save / "step-00000003"]):
        said = subprocess.run([*line, *more], check=True, capture_output=True, text=True, timeout=600).stderr
    block = said[said.index("summary of steps 4 to 6"):].splitlines()
    if any(len(text) > 80 for text in block) or not any("model FLOP utilisation" in text for text in block):
        yield f"summary: {block}"
    wanted = {}
    for entry in map(json.loads, metrics.read_text().splitlines()):
        if "summary" in entry:
            continue
        for name, value in entry.items():
            tag = name.replace("held_out_", "held_out/") if name.startswith("held_out_") else f"train/{name}"
            if name != "step":
                wanted[tag, entry["step"]] = struct.unpack("<f", struct.pack("<f", value))[0]
    found = {key: value for key, value in shown(tensorboard).items() if key[0] != "train/tokens_per_s"}
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


def main():
    with tempfile.TemporaryDirectory() as temporary:
        wrong = [*curves(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(temporary))]
    print(*wrong, sep="\n", end="")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
