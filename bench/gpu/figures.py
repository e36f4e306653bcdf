"""Figures of dhp alone on one GPU: ratios of two ways to run the same steps, in turns.

figures.py packed|graphs|overhead OUT.json --trainers FOLDER --program FILE [--tiny] [--dry-run]
packed    BERT on text whose samples differ in length: tokens without padding per second, packed against padded; from
WordNet's glosses if the machine has them (--wordnet), else from a made-up text graphs    steps recorded as CUDA graphs
against the same steps without recording overhead  a step in a world of one rank, with NCCL, against one without a
communicator; --program is bench_world_of_one --tiny: small models on the CPU, to try the script. --dry-run: only checks
that the programs take the options.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

import trainer
from rows import measured, ratio_of

vocabulary = 30522


def made_up_text(folder, mean_log=2.9, longest=80):
    """Writes sentences of prose lengths, 5 to 80 words, whose words follow Zipf's law."""
    text, words = os.path.join(folder, "text.txt"), os.path.join(folder, "vocab.txt")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    with open(words, "w") as file:
        file.write("\n".join(special + ["w%d" % word for word in range(vocabulary - len(special))]) + "\n")
    draw = random.Random(1)
    with open(text, "w") as file:
        for _ in range(2000):
            for _ in range(8):
                length = min(longest, max(5, round(draw.lognormvariate(mean_log, 0.6))))
                ranks = (int((vocabulary - len(special)) ** draw.random()) - 1 for _ in range(length))
                file.write(" ".join("w%d" % rank for rank in ranks) + "\n")
            file.write("\n")
    return ["--data", text, "--vocabulary", words, "--sentences", "lines"]


def packed(arguments, folder):
    name, length, batch, more = ("tiny", 128, 8, []) if arguments.tiny else ("base", 128, 256, ["--precision", "bf16"])
    glosses = os.path.exists(os.path.join(arguments.wordnet, "data.noun"))
    data = ["--data", arguments.wordnet, "--vocabulary-size", "8192"] if glosses else made_up_text(folder)
    options = ["--preset", name, "--sequence-length", length, "--global-batch", batch, "--micro-batch", batch,
               "--evaluate-samples", "1", "--loader-threads", "4", "--lr", "0.0001", *data, *more]
    return [{"figure": "packed against padded, BERT-%s, %d tokens, %s" % (
        name, length, "WordNet's glosses" if glosses else "a made-up text"), "trainer": "train_bert",
        "options": options, "ways": [["--layout", "packed"], ["--layout", "padded"]], "seeds": True}]


def graphs(arguments, folder):
    resident = ["--data", "synthetic-resident"]
    recorded = [[], []] if arguments.tiny else [["--cuda-graphs"], ["--no-cuda-graphs"]]

    def resnet(batch):
        size = ["--image-size", 32, "--depth", 14, "--width", 8] if arguments.tiny else ["--precision", "bf16"]
        return {"figure": "recorded steps against others, ResNet-50, batch %d" % batch, "trainer": "train_resnet50",
                "options": [*resident, "--held-out", "0", "--global-batch", batch, "--micro-batch", batch, *size],
                "ways": recorded}

    def bert(batch, name, data):
        size = ["--preset", "tiny"] if arguments.tiny else ["--preset", "base", "--precision", "bf16"]
        return {"figure": "recorded steps against others, BERT-base, 128 tokens, %s, batch %d" % (name, batch),
                "trainer": "train_bert", "ways": recorded,
                "options": [*data, "--evaluate-samples", "1", "--global-batch", batch, "--micro-batch", batch, *size]}

    berts = [("the same samples", resident),  # the padded case has new batches each step
             ("padded", ["--layout", "padded", "--loader-threads", "4", "--lr", "0.0001", *made_up_text(folder)])]
    batch = 2 if arguments.tiny else 32
    return [*map(resnet, [batch] if arguments.tiny else [256, batch]), *(bert(batch, *each) for each in berts)]


def compared(case, arguments, folder):
    """Returns how much faster the first way is than the second."""
    rates, tokens = ([], []), ([], [])
    run = trainer.Trainer(os.path.join(arguments.trainers, case["trainer"]), case["options"], folder)
    for round_number in range(arguments.rounds):
        # New samples in each round include the tuning of new shapes in the measurement.
        seed = ["--seed", str(round_number)] if case.get("seeds") else []
        for way, options in enumerate(case["ways"]):
            steps = run.steps(options + seed, arguments.warm_up, arguments.steps)
            if "--cuda-graphs" in options and not all(step["replayed"] for step in steps):
                raise RuntimeError("some steps were not recorded")
            rates[way].append(trainer.samples_per_s(steps))
            tokens[way].append(sum(step.get("token_rows", 0) for step in steps))
    row = {"figure": case["figure"], **ratio_of(rates[0], rates[1]), "command": " ".join(run.command)}
    if case.get("seeds"):
        if not tokens[0][0]:
            raise RuntimeError("the metrics lack the token rows of a step")
        row["share_of_padded_rows_that_count"] = tokens[0][0] / tokens[1][0]
        per_sample = tokens[0][0] / (arguments.steps * trainer.option(run.command, "--global-batch"))
        row["tokens_per_s"] = [per_sample * statistics.median(rate) for rate in rates]
    return row


def overhead_command(arguments, workload):
    # Many short rounds, since the difference is about 1 %.
    return [arguments.program, workload, str(3 * arguments.rounds), str(arguments.steps)]


def overhead(workload, arguments):
    command = overhead_command(arguments, workload)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1])
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    row = {"figure": "a world of one NCCL rank against none, %s" % workload,
           **ratio_of([each["in_world_s"] for each in rounds], [each["alone_s"] for each in rounds])}
    apart = max(abs(each["loss"] - each["loss_in_world"]) / abs(each["loss"]) for each in rounds)
    if apart > 0.02:
        raise RuntimeError("the losses differ by %g: the runs are not the same" % apart)
    return row


def measurements(arguments, folder):
    """Returns the measurements: for each, its keys and a function that makes it."""
    if arguments.kind == "overhead":
        workloads = ["resnet14", "bert-tiny"] if arguments.tiny else ["resnet50-224", "bert-base"]
        return [({"figure": name}, lambda name=name: overhead(name, arguments)) for name in workloads]
    cases = {"packed": packed, "graphs": graphs}[arguments.kind](arguments, folder)
    return [({"figure": case["figure"]}, lambda case=case: compared(case, arguments, folder)) for case in cases]


def check_options(arguments):
    wrong = 0
    if arguments.kind == "overhead":
        with open(os.path.join(os.path.dirname(__file__), "..", "workloads.hpp")) as file:
            known = re.findall(r'name == "([\w-]+)"', file.read())
        for known_by, _ in measurements(arguments, ""):
            print(" ".join(overhead_command(arguments, known_by["figure"])))
            wrong |= known_by["figure"] not in known
        return wrong
    with tempfile.TemporaryDirectory() as folder:
        for case in {"packed": packed, "graphs": graphs}[arguments.kind](arguments, folder):
            command = trainer.Trainer(os.path.join(arguments.trainers, case["trainer"]), case["options"], folder).command
            for way in case["ways"]:
                print(" ".join(command + way))
                wrong |= trainer.check_options(command + way)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["packed", "graphs", "overhead"])
    parser.add_argument("out")
    parser.add_argument("--program", default="build/cuda/bench/bench_world_of_one")
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    arguments = trainer.parsed(parser)
    if arguments.dry_run:
        return check_options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return measured(arguments.out, "figures", measurements(arguments, folder),
                        "%(figure)s: %(ratio).3f (%(ratio_least).3f to %(ratio_most).3f)")


if __name__ == "__main__":
    sys.exit(main())
