#!/usr/bin/env python3
"""replay.py DHP_REPLAY DHP_COMPARE TRAIN_BERT TRAIN_RESNET50: dhp_replay computes a step of a saved run again in other
layouts, and every layer has the same bits. dhp_compare finds the first layer that differs in another run."""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import recorded, run, temporary_folder  # noqa: E402

MODELS = {"bert": ["--sequence-length", "16", "--vocabulary-size", "60", "--samples", "40", "--held-out", "0", "--global-batch", "8",
                   "--micro-batch", "2"],
          "resnet": ["--depth", "14", "--width", "4", "--image-size", "16", "--classes", "4", "--global-batch", "8", "--micro-batch", "2",
                     "--samples", "32", "--held-out", "0"]}
LAYOUTS = [[], ["--data-parallel", "2"], ["--data-parallel", "2", "--pipeline-parallel", "2", "--schedule", "zero-bubble"],
           ["--pipeline-parallel", "2", "--recompute"], ["--data-parallel", "2", "--tensor-parallel", "2"]]


def losses(path):
    return {line["step"]: line["loss"] for line in recorded(path)}


def replays(name, trainer, replay, compare, folder):
    run_folder, metrics = folder / f"{name}-run", folder / f"{name}.jsonl"
    run(trainer, *MODELS[name], "--deterministic", "--steps", 6, "--save", run_folder, "--save-every", 2, "--metrics", metrics)
    first = folder / f"{name}-0.values"
    for at, layout in enumerate(LAYOUTS):
        values, again = folder / f"{name}-{at}.values", folder / f"{name}-{at}.jsonl"
        said = run(replay, "--load", run_folder, "--step", 4, "--trace-values", values, "--metrics", again, *layout, status=75)
        if f"loaded {run_folder}/step-00000002: goes on after step 2" not in said or "stops after step 4, as --stop-after" not in said:
            yield f"{name} {layout}: {said}"
        if losses(again) != {step: loss for step, loss in losses(metrics).items() if step in (3, 4)}:
            yield f"{name} {layout}: other losses than the run's"
        kinds = {(line["step"], line["value"]) for line in map(json.loads, values.read_text().splitlines())}
        if kinds != {(4, "output"), (4, "input gradient")}:
            yield f"{name} {layout}: values of {kinds}"
        if "values that both have are the same, to the last bit" not in run(compare, first, values):
            yield f"{name} {layout}: values differ"
    # The last step of the run.
    run(replay, "--load", run_folder, "--step", 6, status=0)
    before = metrics.read_text()
    for option, path in ("--metrics", metrics), ("--save", run_folder), ("--resume", run_folder):
        said = run(replay, "--load", run_folder, "--step", 4, option, path, status=1)
        if f"{option} {path} exists, and would lose the steps after the replayed one" not in said:
            yield f"{option} of the run: {said}"
    if metrics.read_text() != before or not (run_folder / "step-00000006").exists():
        yield f"{name}: the run has lost steps"
    said = run(replay, "--load", run_folder, "--step", 2, status=1)
    if f"the first checkpoint in {run_folder} is after step 2; choose a later step" not in said:
        yield f"step 2: {said}"


def changed(trainer, replay, folder):
    """If a run went on with other options, a replayed step uses the options that it was computed with."""
    run_folder, metrics, again = folder / "changed", folder / "changed.jsonl", folder / "again.jsonl"
    options = [*MODELS["bert"], "--resume", run_folder, "--metrics", metrics]
    run(trainer, *options, "--steps", 2)
    run(trainer, *options, "--steps", 4, "--lr", "0.02", "--freeze", "bert.embeddings.*,*.bias")
    run(replay, "--load", run_folder, "--step", 4, "--metrics", again)
    if losses(again) != {step: loss for step, loss in losses(metrics).items() if step > 2}:
        yield "changed options: other losses than the run's"
    if "--step 5: the run ends after step 4; choose an earlier step" not in (
            said := run(replay, "--load", run_folder, "--step", 5, status=1)):
        yield f"a step behind the end: {said}"


def finds(replay, compare, folder):
    """An edited line stands for a wrong tensor of another machine."""
    values, wrong = folder / "bert-0.values", folder / "wrong.values"
    lines = values.read_text().splitlines()
    at = next(at for at, line in enumerate(lines) if json.loads(line)["micro_batch"] == 2 and json.loads(line)["layer"] == 3)
    bad = json.loads(lines[at])
    bad["fingerprint"] = "0" * 16
    wrong.write_text("\n".join([*lines[:at], json.dumps(bad), *lines[at + 1:]]) + "\n")
    said = run(compare, values, wrong, status=1)
    if f"first in step 4, tensor rank 0, micro-batch 2: the output of layer 3, {bad['name']}; the last that is the same is the output of layer 2" not in said:
        yield f"a wrong tensor: {said}"
    # Another dropout rate first shows in the output of layer 0, which has the first dropout.
    run(replay, "--load", folder / "bert-run", "--step", 4, "--trace-values", wrong, "--dropout", "0.3", status=75)
    if "first in step 4, tensor rank 0, micro-batch 0: the output of layer 0" not in (said := run(compare, values, wrong, status=1)):
        yield f"another dropout: {said}"
    if "is a file of --trace-values and" not in (said := run(compare, values, folder / "bert.jsonl", status=2)):
        yield f"values and metrics: {said}"


def main():
    replay, compare, bert, resnet = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:])
    with temporary_folder() as folder:
        wrong = [*replays("bert", bert, replay, compare, folder), *replays("resnet", resnet, replay, compare, folder),
                 *changed(bert, replay, folder), *finds(replay, compare, folder)]
    print("steps computed again", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
