#!/usr/bin/env python3
"""resume.py TRAIN_RESNET50 TRAIN_BERT TRAIN_GPT [--all]: a run that was saved in one layout goes on in others, with and
without ZeRO. The next five steps have the bits of an uninterrupted run.
--all: all pairs with the first layout, with 31 and with 127 classes and words; takes minutes."""

import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import axes, recorded, run  # noqa: E402

LAYOUTS = [(2, 2, 2), (1, 1, 1), (4, 1, 2), (1, 4, 1), (8, 1, 1), (1, 1, 4)]
SAVED_STEPS, STEPS = 3, 8
COMMON = ["--global-batch", "16", "--micro-batch", "2", "--deterministic", "--lr", "0.01", "--held-out", "0",
          "--samples", "64", "--bucket-mb", "0.1"]


def models(programs, size):
    yield "resnet", [programs[0], "--depth", "26", "--width", "16", "--image-size", "32", "--zero-init-gamma", "--classes", str(size)]
    yield "bert", [programs[1], "--preset", "mini", "--sequence-length", "16", "--vocabulary-size", str(size)]
    yield "gpt", [programs[2], "--preset", "llama-tiny", "--sequence-length", "16", "--vocabulary-size", str(size)]


def losses(line, layout, zero, steps, folder, save=None, load=None):
    """The loss and the gradient norm by step."""
    options = [] if load is None else ["--load", load]
    options += [] if save is None else ["--save", save]
    metrics = folder / "metrics"
    metrics.unlink(missing_ok=True)
    run(*line, *COMMON, *axes(layout), "--zero", zero, "--steps", steps, "--lr-decay", "constant", *options, "--metrics", metrics)
    return {one["step"]: (one["loss"], one["grad_norm"]) for one in recorded(metrics)}


def check(name, line, folder, pairs):
    straight = losses(line, (1, 1, 1), 0, STEPS, folder)
    saves, runs = set(), 0
    for saved, saved_zero, loaded, zero in pairs:
        at = folder / f"{name}-{'x'.join(map(str, saved))}-{saved_zero}"
        if at not in saves:
            saves.add(at)
            losses(line, saved, saved_zero, SAVED_STEPS, folder, save=at)
        rest = losses(line, loaded, zero, STEPS, folder, load=at)
        runs += 1
        assert list(rest) == list(range(SAVED_STEPS + 1, STEPS + 1)), rest
        if any(straight[step] != rest[step] for step in rest):
            yield f"{name}: saved on {saved} with --zero {saved_zero}, loaded on {loaded} with --zero {zero}: other bits: {rest}"
    print(f"{name}: {runs} runs went on from {len(saves)} checkpoints", flush=True)


def main():
    programs = sys.argv[1:4]
    everything = "--all" in sys.argv
    first = LAYOUTS[0]
    if everything:
        pairs = [(a, z, b, y) for other in LAYOUTS for a, b in {(first, other), (other, first)} for z in range(4) for y in range(4)]
    else:
        pairs = [(first, 3, (1, 1, 1), 0), (first, 3, (4, 1, 2), 2), ((1, 1, 1), 0, first, 1), ((1, 1, 1), 0, (8, 1, 1), 3)]
    wrong = []
    for size in (31, 127) if everything else (31,):
        with tempfile.TemporaryDirectory() as temporary:
            for name, line in models(programs, size):
                # One pair is enough for the decoder with two key heads; its other layers are BERT's.
                of = [(first, 3, (1, 1, 1), 0)] if name == "gpt" else pairs
                wrong += check(f"{name} of {size}", line, pathlib.Path(temporary), of)
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
