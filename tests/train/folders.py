#!/usr/bin/env python3
"""folders.py TRAIN_BERT TRAIN_RESNET50 DHP_COMPARE: the folders that the trainers write: the best checkpoint, one run
at a time, runs that are done or have stopped early, and interrupted saves."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import losses, recorded, run, temporary_folder  # noqa: E402

BERT = ["--sequence-length", "16", "--vocabulary-size", "60", "--samples", "40"]
RESNET = ["--depth", "14", "--width", "4", "--image-size", "16", "--classes", "4", "--global-batch", "8", "--micro-batch", "4",
          "--samples", "32"]
BEST = ["--keep", "1", "--save-every", "2", "--evaluate-every", "2", "--steps"]


def files(folder):
    """The files of a folder with their contents."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def keeps_best(program, options, measure, lowest, folder):
    """A run keeps its best save by the metrics, and its newest, also if it is continued half-way."""
    for name, legs in (("at once", [12]), ("in two", [6, 12])):
        save, metrics = folder / f"{measure} {name}", folder / f"{measure} {name}.jsonl"
        for leg in legs:
            load = ["--load", save] if leg != legs[0] else []
            run(program, *options, *BEST, leg, "--keep-best", measure, "--save", save, "--metrics", metrics, "--lr-decay",
                "constant", *load)
        key = f"held_out_{measure}"
        found = {line["step"]: line[key] for line in recorded(metrics, key) if line["step"]}
        numbers = [value for value in found.values() if value is not None]
        best = max(step for step in found if found[step] == (min if lowest else max)(numbers))
        kept = sorted(int(path.name[5:]) for path in save.glob("step-*"))
        if kept != sorted({best, 12}):
            yield f"--keep-best {measure}, {name}: kept {kept}, found {found}"


def one_run_at_a_time(program, folder):
    save, metrics = folder / "held", folder / "held.jsonl"
    first = subprocess.Popen([program, *BERT, "--steps", "99999", "--save-every", "20", "--save", save, "--metrics", metrics],
                             stderr=subprocess.DEVNULL)
    try:
        while not (save / "latest").exists():
            time.sleep(0.02)
        for options in (["--save", save], ["--load", save, "--save", save], ["--save", save, "--overwrite"]):
            said = run(program, *BERT, "--steps", 99999, *options, status=1)
            if f"--save {save} is in use by another run: host " not in said or f"process {first.pid};" not in said:
                yield f"{options} beside a run: {said}"
        said = run(program, *BERT, "--steps", 2, "--metrics", metrics, "--overwrite", status=1)
        if f"--metrics {metrics} is in use by another run; wait" not in said:
            yield f"one file of metrics for two runs: {said}"
        run(program, *BERT, "--steps", 1, "--load", save, "--evaluate-only")  # only reads, so it may run
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    # The kill may have come after a checkpoint was written and before `latest` named it.
    steps = max(int(path.name[5:]) for path in save.glob("step-*[0-9]")) + 1
    (save / f"step-{steps + 7:08}.part").mkdir()
    said = run(program, *BERT, "--steps", steps, "--load", save, "--save", save, "--metrics", metrics)
    if f"warning: {save}/step-{steps + 7:08}.part is a save that was not finished" not in said:
        yield f"an interrupted save: {said}"


def done_is_done(program, folder):
    save = folder / "done"
    line = [*BERT, "--save", save, "--steps"]
    run(program, *line, 2)
    before = files(save)
    for options in (["--load", save, "--save", save], ["--load", save], ["--load", save, "--save", save, "--data-parallel", 2]):
        said = run(program, *BERT, "--steps", 2, *options)
        if f"nothing is left to do: {save}/step-00000002 is the end of this run of 2 steps" not in said or files(save) != before:
            yield f"{options} of a run that is done: {said}"
    said = run(program, *BERT, "--steps", 2, "--load", save, "--save", save, "--export", folder / "exported")
    if "exported" not in said or not (folder / "exported" / "model.safetensors").exists():
        yield f"--export of a run that is done: {said}"
    if "goes on after step 2" not in run(program, *line, 4, "--load", save):
        yield "a run that was done does not go on"
    if "is after step 4 and this run ends after step 3" not in run(program, *line, 3, "--load", save, status=1):
        yield "a run that ends before the checkpoint"
    (save / "step-00000003").mkdir()  # like a run that was killed before it removed this checkpoint
    (save / "step-00000003" / "index.json").write_text("{}")
    (save / "latest").unlink()  # or before it had named its first one
    run(program, *line, 4, "--load", save, "--keep", 1)
    if not (save / "latest").exists() or (save / "latest").read_text() != "step-00000004\n":
        yield "the only checkpoint of a run that is done is not named"
    if (kept := [path.name for path in save.glob("step-*")]) != ["step-00000004"]:
        yield f"--keep 1 of a run that is done: {kept}"
    early = [*BERT, "--steps", 50, "--evaluate-every", 1, "--lr", 0, "--stop-early", "masked_loss", "--save", folder / "early"]
    said = run(program, *early, "--patience", 2, "--stop-after", 2)  # with lr 0, the loss never improves
    if "stops early: masked_loss was best" not in said or "--stop-after asked" in said:
        yield f"a run that stops early after the step of --stop-after: {said}"
    for patience, said in ((2, "is the end of this run of 50 steps, which has stopped early: masked_loss was best after step 0"),
                           (4, "goes on after step 2")):
        if said not in (told := run(program, *early, "--patience", patience, "--load", folder / "early")):
            yield f"--patience {patience} of a run that has stopped early: {told}"
    if (newest := (folder / "early" / "latest").read_text()) != "step-00000004\n":
        yield f"patience counts from the beginning again: {newest}"


def same_line_at_every_start(program, folder):
    """With --resume, the first start begins with --load, and the next with the newest save that is not damaged."""
    whole, before, save = folder / "whole", folder / "before", folder / "resumed"
    line = [*BERT, "--deterministic", "--lr-decay", "constant", "--steps"]
    run(program, *line, 6, "--save", whole)
    run(program, *line, 2, "--save", before)
    for steps, goes_on in ((4, f"loaded {before}/step-00000002: goes on after step 2"),
                           (6, f"loaded {save}/step-00000003: goes on after step 3")):
        said = run(program, *line, steps, "--save-every", 1, "--load", before, "--resume", save)
        if goes_on not in said:
            yield f"--resume, {steps} steps: {said}"
        for path in save.glob("step-00000004/*.safetensors") if steps == 4 else []:
            path.write_bytes(path.read_bytes()[:1000])
    name = "step-00000006/shard-00000.safetensors"
    if (whole / name).read_bytes() != (save / name).read_bytes():
        yield "a run that --resume continued twice has other weights than one that ran at once"


def odd_names(program, folder):
    """A folder may be named like a weight file, and have a pipe `latest`. A checkpoint keeps --synthetic-gradients."""
    save = folder / "run.safetensors"
    stages = [*BERT, "--pipeline-parallel", 2, "--steps"]
    run(program, *stages, 2, "--synthetic-gradients", "--save", save)
    (save / "latest").unlink()
    os.mkfifo(save / "latest")
    said = run(program, *stages, 4, "--load", save)
    if "goes on after step 2" not in said or "schedule of synthetic gradients" not in said:
        yield f"{save}: {said}"


def batches_counted(folder, number=None):
    """The values of num_batches_tracked in exported weights. If `number` is given, it replaces them."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = 8 + struct.unpack("<Q", data[:8])[0]
    places = [length + tensor["data_offsets"][0] for name, tensor in json.loads(data[8:length]).items()
              if name.endswith(".num_batches_tracked")]
    found = {struct.unpack_from("<q", data, at)[0] for at in places}
    for at in places if number else []:
        data = data[:at] + struct.pack("<q", number) + data[at + 8:]
    path.write_bytes(data)
    return found


def counting_goes_on(program, folder):
    """num_batches_tracked counts on from the loaded weights, through a checkpoint, to the exported weights."""
    save = [*RESNET, "--save", folder / "counted", "--export"]
    run(program, *RESNET, "--steps", 2, "--save", folder / "published", "--export", folder / "w")
    begun = batches_counted(folder / "w", 100000)
    run(program, *save, folder / "w1", "--steps", 3, "--load", folder / "w" / "model.safetensors")
    run(program, *save, folder / "w2", "--steps", 5, "--load", folder / "counted")
    found = [begun, *(batches_counted(folder / name) for name in ("w1", "w2"))]
    if found != [{2}, {100003}, {100005}]:
        yield f"num_batches_tracked: {found}"


def text_cache(program, folder):
    """--text-cache does not change a run on a text or a column, whether it writes or reads the cache."""
    documents = [f"The cat number {n} sat down. It slept for {n} hours. Then it went home.\n" for n in range(300)]
    (folder / "a.txt").write_text("\n".join(documents))
    (folder / "b.jsonl").write_text("".join(json.dumps({"id": 1, "body": text}) + "\n" for text in documents))
    metrics, found = folder / "cached.jsonl", []
    column = ["--data", folder / "b.jsonl", "--text-column", "body"]
    cache = ["--text-cache", folder / "deep" / "cache"]
    for options in (["--data", folder / "a.txt"], ["--data", folder / "a.txt", *cache], [*column, *cache], [*column, *cache]):
        run(program, "--vocabulary-size", 80, "--sequence-length", 32, "--deterministic", "--steps", 3, "--overwrite", "--metrics",
            metrics, *options)
        found.append(losses(metrics))
    if found != found[:1] * 4 or len(list((folder / "deep" / "cache").glob("*.tokens"))) != 2:
        yield f"--text-cache: {found}"
    for steps in (1, 2, 3):  # before step 3, the data change
        if steps == 3:
            (folder / "a.txt").write_text("\n".join(f"It went home. The cat sat {n} hours.\n" for n in range(300)))
        said = run(program, *BERT, "--data", folder / "a.txt", "--steps", steps, "--resume", folder / "changed")
        if ("warning: the data have" in said) != (steps == 3):
            yield f"step {steps} of a run whose text changes: {said}"


def compared(compare, folder):
    (folder / "a.jsonl").write_text('{"step": 1, "loss": 2}\n')
    for options, said in (([folder / "done", folder / "no"], f"{folder / 'no'}: there is no such file or directory"),
                          ([folder / "no", folder / "done"], f"{folder / 'no'}: there is no such file or directory"),
                          ([folder / "a.jsonl", folder / "no"], f"{folder / 'no'}: there is no such file or directory"),
                          ([folder / "a.jsonl", folder / "done"], f"{folder / 'done'} is a folder and {folder / 'a.jsonl'} is a")):
        if said not in (told := run(compare, *options, status=2)):
            yield f"dhp_compare {options}: {told}"


def main():
    bert, resnet, compare = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:])
    with temporary_folder() as folder:
        wrong = [*keeps_best(bert, [*BERT, "--lr", "0.05"], "masked_accuracy", False, folder),
                 *keeps_best(bert, [*BERT, "--lr", "0.05"], "perplexity", True, folder),
                 *keeps_best(bert, [*BERT, "--lr", "0"], "masked_loss", True, folder),  # ties
                 *keeps_best(resnet, [*RESNET, "--lr", "0.3"], "top1", False, folder),
                 *one_run_at_a_time(bert, folder), *done_is_done(bert, folder),
                 *same_line_at_every_start(bert, folder), *odd_names(bert, folder),
                 *counting_goes_on(resnet, folder), *text_cache(bert, folder), *compared(compare, folder)]
    print("what a run keeps in its folders", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
