#!/usr/bin/env python3
"""layouts.py TRAIN_RESNET50 TRAIN_BERT TRAIN_GPT gloo|mpi...: with --deterministic, every layout has the bits of a run
on one rank, as threads and as processes over each engine: the losses and norms of all steps, and the final weights.
Decoders like GPT-2 and Llama are trained in fewer layouts, one of them as processes."""

import json
import math
import pathlib
import subprocess
import sys

import ranks

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import axes, temporary_folder  # noqa: E402

MPIRUN = pathlib.Path(__file__).parent.parent / "launch" / "mpirun.sh"
LAYOUTS = [(4, 1, 1), (1, 2, 1), (1, 1, 2), (1, 2, 2), (2, 2, 2)]  # each axis alone, and with others
COMMON = ["--steps", "3", "--global-batch", "16", "--micro-batch", "2", "--evaluate-samples", "8", "--deterministic",
          "--lr", "0.01"]
MODELS = {
    "resnet": ["--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--zero-init-gamma"],
    "gpt": ["--preset", "tiny", "--sequence-length", "24", "--samples", "64"],
    "llama": ["--preset", "llama-tiny", "--sequence-length", "24", "--samples", "64", "--vocabulary-size", "255"],
    "bert": ["--preset", "tiny", "--sequence-length", "32", "--vocabulary-size", "256", "--samples", "64"],
}


def trained(program, model, layout, over, folder, **options):
    """Trains. Returns the metrics that do not depend on the layout, and the weights' bytes. options: for ranks.run."""
    size = math.prod(layout)
    folder.mkdir()
    line = [program, *MODELS[model], *COMMON, *axes(layout), "--metrics", str(folder / "metrics"), "--save", str(folder / "save"),
            "--export", str(folder / "weights")]
    if model != "resnet" and layout[1] > 1:
        line.append("--sequence-parallel")  # changes no bit
    if over == "threads":
        ranks.run(1, line)  # a world of one process: its ranks are threads
    elif over == "mpi":
        subprocess.run([MPIRUN, str(size), *line], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    else:
        ranks.run(size, [*line, "--transport", over], **options)
    metrics = [json.loads(text) for text in (folder / "metrics").read_text().splitlines() if '"summary"' not in text]
    for step in metrics:
        step.pop("samples_per_s", None)
        step.pop("token_rows", None)  # counts one replica
        step.pop("peak_memory_bytes", None)  # depends on the timing of messages
    weights = (folder / "weights" / "model.safetensors").read_bytes()
    return metrics, weights


def main():
    programs = {"resnet": sys.argv[1], "bert": sys.argv[2], "gpt": sys.argv[3], "llama": sys.argv[3]}
    wrong = []
    with temporary_folder() as root:
        for model, program in programs.items():
            serial = trained(program, model, (1, 1, 1), "threads", root / f"{model}-serial")
            assert len(serial[0]) >= 5, serial[0]
            few = model in ("gpt", "llama")
            for layout in [*LAYOUTS[:3], LAYOUTS[-1]] if few else LAYOUTS:
                name = f"{model} {'x'.join(map(str, layout))}"
                threads = trained(program, model, layout, "threads", root / f"{name} threads")
                if threads != serial:
                    wrong.append(f"{name}: {threads[0]} has not the bits of one rank {serial[0]}")
                for over in sys.argv[4:] if not few else sys.argv[4:5] if layout == LAYOUTS[-1] else []:
                    processes = trained(program, model, layout, over, root / f"{name} {over}")
                    if processes != threads:
                        wrong.append(f"{name}: processes over {over} {processes[0]} are not threads {threads[0]}")
                    if processes != serial:
                        wrong.append(f"{name}: {processes[0]} has not the bits of one rank {serial[0]}")
                print(name, "the same" if not wrong else wrong[-1], flush=True)
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
