#!/usr/bin/env python3
"""Methods that exchange less between replicas, beside plain data parallelism: loss by samples and by bytes.

older_ideas.py TRAIN_RESNET50 TRAIN_BERT [--replicas N] [--steps N] [--cases NAME ...] [--json FILE] [--curves FOLDER]

Trains a ResNet-14 of width 8 on Fashion-MNIST and a tiny BERT on WordNet's glosses (Debian: dataset-fashion-mnist,
wordnet-base), as ranks that are threads. Each case is a list of options and a formula for the gradient bytes that a
rank sends in a step. A test compares the formula with counted bytes (tests/extra/compressed_reducer.cpp; for late
gradients lesson 14). The columns:

  bytes       bytes that a rank sends in a step, and the ratio of fp32's bytes to them
  loss        mean of the last tenth of the steps
  held out    loss on held-out samples (BERT: of masked tokens); accuracy of images
  fp32 then   loss of fp32 after as many bytes as this case sends in all, mean of a tenth of its steps
"""
import argparse
import collections
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import results_file

FP32 = 4
# name; options; sent(shapes, replicas): mean gradient bytes that a rank sends in a step
Case = collections.namedtuple("Case", "name options sent")


def all_reduced(bytes_brought, replicas):
    return 2 * bytes_brought * (replicas - 1) / replicas


def all_gathered(bytes_brought, replicas):
    return bytes_brought * (replicas - 1)


def count(shape):
    return math.prod(shape)


def compressed(matrix_bytes, gathered=False, takes=lambda rows, columns: True):
    """Compresses: sends matrix_bytes(rows, columns) for each matrix that it compresses, and the rest in fp32."""
    def sent(shapes, replicas):
        matrices, rest = [], 0
        for shape in shapes:
            rows, columns = shape[0], count(shape[1:])
            if len(shape) > 1 and takes(rows, columns):
                matrices.append(matrix_bytes(rows, columns))
            else:
                rest += FP32 * count(shape)
        exchange = all_gathered if gathered else all_reduced
        return all_reduced(rest, replicas) + exchange(sum(matrices), replicas)
    return sent


def uncompressed(shapes, replicas, every=1):
    """Sends all weights in fp32 once in `every` steps, and sums of running statistics in each step."""
    return all_reduced(FP32 * ((sum(map(count, shapes)) - shapes.running) / every + shapes.running), replicas)


def delayed(steps):
    """Sends as many bytes as fp32, and once more those of running statistics, which are summed at once."""
    return Case(f"delayed by {steps}", ["--reducer", "delayed", "--reducer-delay", str(steps)],
                lambda shapes, replicas: uncompressed(shapes, replicas) + all_reduced(FP32 * shapes.running, replicas))


def local_sgd(every, *more, name="local SGD"):
    return Case(f"{name}, {every} steps", ["--reducer", "local", "--local-steps", str(every), *more],
                lambda shapes, replicas: uncompressed(shapes, replicas, every))


def top_k(share):
    return Case(f"top-k, {share:.1%}", ["--reducer", "top-k", "--reducer-share", str(share)],
                compressed(lambda rows, columns: 8 * math.ceil(share * rows * columns), gathered=True))


def power_sgd(rank):
    def of(rows, columns):
        return min(rank, rows, columns)
    return Case(f"PowerSGD, rank {rank}", ["--reducer", "powersgd", "--reducer-rank", str(rank)],
                compressed(lambda rows, columns: FP32 * of(rows, columns) * (rows + columns),
                           takes=lambda rows, columns: (rows + columns) * of(rows, columns) < rows * columns))


CASES = [
    Case("fp32", [], uncompressed),
    Case("16-bit", ["--reducer", "16-bit"], compressed(lambda rows, columns: 2 * rows * columns)),
    top_k(0.01),
    power_sgd(4),
    Case("one bit", ["--reducer", "one-bit"],
         compressed(lambda rows, columns: (rows * columns + 7) // 8 + 8, gathered=True)),
    delayed(1),
    local_sgd(8),
    local_sgd(20, "--outer-lr", "0.7", "--outer-momentum", "0.9", name="DiLoCo"),
]

TASKS = {
    "ResNet-14, Fashion-MNIST": ("resnet", [
        "--data", "/usr/share/datasets/fashion-mnist", "--depth", "14", "--width", "8", "--stem-stride", "2", "--zero-init-gamma",
        "--global-batch", "128", "--micro-batch", "16", "--lr", "0.1", "--lr-decay", "cosine", "--warmup", "20"]),
    "BERT-tiny, WordNet": ("bert", [
        "--data", "/usr/share/wordnet", "--preset", "tiny", "--vocabulary-size", "4096", "--sequence-length", "64",
        "--dropout", "0", "--global-batch", "64", "--micro-batch", "16", "--lr", "3e-3", "--warmup", "40",
        "--evaluate-samples", "2000"]),
}


def run(program, options, folder):
    """Runs a trainer; returns the lines of its metrics file."""
    metrics = folder / "metrics.jsonl"
    done = subprocess.run([program, *options, "--metrics", metrics, "--overwrite"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, done.args))}: {done.stderr}")
    return [json.loads(line) for line in metrics.read_text().splitlines()]


class Shapes(list):
    """Shapes of parameters; running: number of their elements that are running statistics."""
    running = 0


def shapes_of(program, options, folder):
    """Returns the shapes of all parameters and running statistics, whose gradients and sums replicas exchange."""
    run(program, [*options, "--steps", "0", "--samples", "256", "--save", folder / "model"], folder)
    index = next((folder / "model").glob("step-*/index.json"))
    tensors = json.loads(index.read_text())["tensors"]
    tensors = {name: tensor["shape"] for name, tensor in tensors.items() if not name.startswith("optimizer/")}
    shapes = Shapes(tensors.values())
    shapes.running = sum(count(shape) for name, shape in tensors.items() if ".running_" in name)
    return shapes


def mean(values):
    return sum(values) / len(values)


def task_results(name, program, options, arguments, folder):
    replicas, steps = arguments.replicas, arguments.steps
    shapes = shapes_of(program, options, folder)
    options = [*options, "--data-parallel", str(replicas), "--steps", str(steps)]
    results, tenth = [], max(steps // 10, 1)
    for case in CASES:
        if arguments.cases and case.name not in arguments.cases and case is not CASES[0]:
            continue
        lines = run(program, [*options, *case.options], folder)
        losses = [line["loss"] for line in lines if "loss" in line]
        held_out = [line for line in lines if any(key.startswith("held_out") for key in line)][-1]
        results.append({"case": case.name, "options": case.options, "bytes_per_step": case.sent(shapes, replicas),
                        "losses": losses, "loss": mean(losses[-tenth:]),
                        "held_out_loss": held_out.get("held_out_loss", held_out.get("held_out_masked_loss")),
                        "held_out_top1": held_out.get("held_out_top1")})
    plain = results[0]
    for result in results:
        step = min(steps, max(1, round(steps * result["bytes_per_step"] / plain["bytes_per_step"])))
        result["fp32_loss_at_its_bytes"] = mean(plain["losses"][max(0, step - tenth):step])
        result["fp32_steps_at_its_bytes"] = step
    return results


def curves(results, samples_of_a_step, points=60):
    """Writes the table for docs/pictures/draw.py --curves: each case's mean loss in `points` parts of the run."""
    cases = {}
    for result in results:
        losses = result.pop("losses")
        together = max(len(losses) // points, 1)
        ends = range(together, len(losses) + 1, together)
        cases[result["case"]] = {"samples": [end * samples_of_a_step for end in ends],
                                 "bytes": [round(end * result["bytes_per_step"]) for end in ends],
                                 "loss": [round(mean(losses[end - together:end]), 4) for end in ends]}
    return {"cases": cases}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("resnet")
    parser.add_argument("bert")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--curves", help="a folder: a table for docs/pictures/draw.py of each model")
    arguments = parser.parse_args()
    unknown = set(arguments.cases or ()) - {case.name for case in CASES}
    if unknown:
        sys.exit(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(case.name for case in CASES)}")
    for folder, package in (("datasets/fashion-mnist", "dataset-fashion-mnist"), ("wordnet", "wordnet-base")):
        if not pathlib.Path("/usr/share", folder).exists():
            print(f"skipped: there is no /usr/share/{folder} (in Debian {package})")
            sys.exit(77)
    everything = {"replicas": arguments.replicas, "steps": arguments.steps, "tasks": {}}
    for name, (kind, options) in TASKS.items():
        with tempfile.TemporaryDirectory() as folder:
            results = task_results(name, getattr(arguments, kind), options, arguments, pathlib.Path(folder))
        everything["tasks"][name] = results
        print(f"{name}, {arguments.replicas} replicas, {arguments.steps} steps\n"
              f"{'':20} {'bytes':>10} {'':>7} {'loss':>7} {'held out':>9} {'top-1':>7} {'fp32 then':>10}")
        for result in results:
            top1 = f"{result['held_out_top1']:.1%}" if result["held_out_top1"] is not None else ""
            print(f"{result['case']:20} {result['bytes_per_step']:10.0f} "
                  f"1/{results[0]['bytes_per_step'] / result['bytes_per_step']:<5.1f} {result['loss']:7.4f} "
                  f"{result['held_out_loss']:9.4f} {top1:>7} {result['fp32_loss_at_its_bytes']:10.4f}")
        print(flush=True)
        table = curves(results, int(options[options.index("--global-batch") + 1]))
        if arguments.curves:
            place = pathlib.Path(arguments.curves)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"older_ideas_{kind}.json").write_text(json.dumps(table) + "\n")
    if arguments.json:
        results_file.save(arguments.json, everything)


if __name__ == "__main__":
    main()
