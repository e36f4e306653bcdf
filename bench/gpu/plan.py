"""The ledger of a training step: launches, bytes and FLOP, and the time that a GPU's limits allow. Needs no GPU.

plan.py PROGRAMS [--save OUT.json] [--before FILE.json] [--eager FILE.json] [--case NAME]...
PROGRAMS has the dry trainers (target dry_trainers); --before: the file that --save wrote at another commit. --eager:
the file that eager.py wrote. Prints Markdown: a table of all cases, and the launches of each case, the longest first.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib

from figures import made_up_text, vocabulary

resnet = ("--data synthetic-resident --held-out 0 --image-size 224 --depth 50 --optimizer sgd --lr 0.1 --steps 2 "
          "--global-batch 256 --micro-batch 256 --precision fp16").split()
bert = ("--preset large --sequence-length 512 --optimizer adamw --lr 0.0001 --clip 1 --evaluate-samples 1 --steps 2 "
        "--global-batch 32 --micro-batch 32 --precision bf16").split()
full = ["--data", "synthetic-resident", "--vocabulary-size", str(vocabulary)]
# name, description, program, options, name of the same step in eager.py
cases = [("resnet50", "ResNet-50, 256, fp16", "dry_resnet50", resnet, "resnet50"),
         ("bert_dropout", "BERT-large, 32 x 512, bf16, dropout 0.1", "dry_bert", [*bert, *full], "bert_dropout"),
         ("bert_library", "the same, --library-dropout", "dry_bert", [*bert, *full, "--library-dropout"], None),
         ("bert", "the same, no dropout", "dry_bert", [*bert, *full, "--dropout", "0"], "bert"),
         ("packed", "BERT-large, 32 of a text, packed, dropout 0.1", "dry_bert", bert, None)]


def counted(case, programs, folder):
    name, _, program, options, _ = case
    if name == "packed":
        options = [*options, *made_up_text(folder, 4.6, 250)]  # pairs have about half of 512 tokens
    done = subprocess.run([os.path.join(programs, program), *options], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["status %d" % done.returncode]
        raise RuntimeError("%s: %s" % (program, said[-1]))
    return json.loads(done.stdout)


def kind(name):
    if name.startswith("cuDNN attention"):
        return "cuDNN, attention"
    if name.startswith(("Attention", "FlashAttention")):
        return "dhp's own attention"
    if name.startswith("cuDNN batch norm"):
        return "cuDNN, batch norm"
    if name.startswith("cuDNN"):
        return "cuDNN, convolutions"
    if name.startswith("cuBLASLt"):
        return "cuBLASLt"
    return "copies and zeros" if name.startswith(("copy", "fill")) else "kernels of dhp"


# dhp's attention with dropout, heads of 64 columns: 1152 FLOP for a query and a key in all its passes. On an H200 these
# passes took 1.03 ms for 32 x 512 tokens and 16 heads; moving their bytes needs 0.16 ms of that.
own_flop = 1152 * 32 * 16 * 512**2 / 0.87e-3
gpus = {"H200": "h200x8.toml", "H100": "h100x8.toml"}
clusters = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "plan", "clusters")


class Limits:
    """Estimates the time of launches as dhp_plan does: bytes and FLOP take their times in sequence, as kernels run."""

    def __init__(self, gpu):
        with open(os.path.join(clusters, gpus[gpu]), "rb") as file:
            device = tomllib.load(file)["device"]
        self.bytes_per_s, self.flop_per_s, self.own_flop_per_s = 1e9 * device["gb_per_s"], 1e12 * device["tflops_16"], own_flop

    def ms(self, row):
        if "ms" in row:
            return row["ms"](self)
        rate = self.own_flop_per_s if kind(row["name"]) == "dhp's own attention" else self.flop_per_s
        return 1e3 * (row["bytes"] / self.bytes_per_s + row["flop"] / rate)


def total(rows):
    sums = {key: sum(row[key] for row in rows) for key in ("launches", "bytes", "flop")}
    return {**sums, "ms": lambda limits: sum(map(limits.ms, rows))}


def grouped(rows):
    groups = {}
    for row in rows:
        groups.setdefault(kind(row["name"]), []).append(row)
    return [{"name": name, **total(group)} for name, group in groups.items()]


def table(title, rows, limits, most):
    yield "| %s | launches | GB | TFLOP | ms at least |" % title
    yield "|---|---|---|---|---|"
    for row in sorted(rows, key=limits.ms, reverse=True)[:most]:
        yield "| %s | %d | %.2f | %.2f | %.2f |" % (
            row["name"], row["launches"], row["bytes"] / 1e9, row["flop"] / 1e12, limits.ms(row))
    yield ""


def line(name, step):
    of = total(step["launches"])
    held = "%.0f" % (step["held_bytes"] / 1e9) if "held_bytes" in step else ""
    times = ["%.1f | %d" % (ms, 1e3 * step["samples"] / ms) for ms in (Limits(gpu).ms(of) for gpu in gpus)]
    return "| %s | %d | %.1f | %.2f | %s | %s |" % (name, of["launches"], of["bytes"] / 1e9, of["flop"] / 1e12, held,
                                                  " | ".join(times))


def text(made, before, eager, limits):
    yield "| a step | launches | GB read and written | TFLOP | GB held | %s |" % " | ".join(
        "ms at least, %s | samples/s at most" % gpu for gpu in gpus)
    yield "|---|---|---|---|---|%s" % ("---|---|" * len(gpus))
    for name, words, _, _, peer in cases:
        if name not in made:
            continue
        if name in before:
            yield line(words + ": before", before[name])
        yield line(words, made[name])
        if peer in eager:
            yield line("PyTorch eager, estimated", eager[peer])
    yield ""
    for name, words, _, _, _ in cases:
        if name in made:
            step = made[name]
            yield "## " + words
            yield ""
            if step["rows"] > 0:
                yield "%d tokens in %d rows." % (step["tokens"], step["rows"])
                yield ""
            yield from table("by", grouped(step["launches"]), limits, 10)
            yield from table("launch", step["launches"], limits, 15)


def load(path):
    if path is None:
        return {}
    with open(path) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--save")
    parser.add_argument("--before")
    parser.add_argument("--eager")
    parser.add_argument("--case", action="append", choices=[case[0] for case in cases])
    parser.add_argument("--gpu", choices=gpus, default="H200", help="whose time the tables of launches show")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = {case[0]: counted(case, arguments.programs, folder)
                for case in cases if arguments.case is None or case[0] in arguments.case}
    if arguments.save:
        with open(arguments.save, "w") as file:
            json.dump(made, file, indent=1)
    print("\n".join(text(made, load(arguments.before), load(arguments.eager).get("steps", {}), Limits(arguments.gpu))))


if __name__ == "__main__":
    sys.exit(main())
