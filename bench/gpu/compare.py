"""Training throughput of the example trainers against PyTorch on one GPU.

compare.py OUT.json --only CASE... --machine FILE --trainers FOLDER [--compiled | --alone] [--tiny] [--dry-run]
Each round runs the trainer, then some steps of the peer. The ratio is that of the medians of the rounds, above 1 where
dhp is faster. Shares are fractions of the bound of work.py. Results are written after each case. --compiled: against
torch.compile(max-autotune). --alone: only the trainer, without PyTorch. --tiny: small models on the CPU, to try the
script. --dry-run: only checks that the trainers take the options.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import trainer
import work
from rows import measured, ratio_of

vocabulary = 30522


def resnet_case(precision, batch, tiny=False):
    size, depth, width = (32, 50, 8) if tiny else (224, 50, 64)
    options = ["--data", "synthetic-resident", "--held-out", "0", "--image-size", size, "--depth", depth,
               "--width", width, "--optimizer", "sgd", "--lr", "0.1", "--label-smoothing", "0"]
    # Small images change the trainer's stem, so --tiny gives no valid comparison.
    return {"name": "ResNet-50", "trainer": "train_resnet50", "options": options,
            "precision": precision, "batch": batch,
            "peer": lambda peers, device, _, compiled: peers.resnet(device, precision, batch, size, width, compiled),
            "flop": work.resnet_flop, "bytes": work.resnet_bytes}


def bert_case(preset, length, batch, dropout=0.1):
    layers, hidden = {"tiny": (2, 128), "base": (12, 768), "large": (24, 1024)}[preset]
    masked = round(0.15 * length)
    options = ["--preset", preset, "--sequence-length", length, "--dropout", dropout, "--optimizer", "adamw",
               "--lr", "0.0001", "--clip", "1", "--evaluate-samples", "1"]
    name = "BERT-%s, %d tokens%s" % (preset, length, "" if dropout else ", no dropout")
    return {"name": name, "trainer": "train_bert", "options": options,
            "precision": "bf16", "batch": batch, "length": length,
            "peer": lambda peers, device, words, compiled: peers.bert(device, "bf16", batch, preset, length, words, masked,
                                                                      dropout, compiled),
            "flop": work.bert_flop(layers, hidden, length, vocabulary, masked), "bytes": 0}


cases = {"resnet50_fp16": resnet_case("fp16", 256), "resnet50_bf16": resnet_case("bf16", 256),
         "bert_base_128": bert_case("base", 128, 256), "bert_base_512": bert_case("base", 512, 64),
         "bert_large_128": bert_case("large", 128, 128), "bert_large_512": bert_case("large", 512, 32),
         "bert_large_512_no_dropout": bert_case("large", 512, 32, 0.0)}


def chosen(arguments):
    if not arguments.tiny:
        return [cases[name] for name in arguments.only]
    return [resnet_case("bf16", 2, tiny=True) if name.startswith("resnet") else bert_case("tiny", 32, 2)
            for name in arguments.only]


def trainer_of(case, arguments, folder):
    options = [*case["options"], "--precision", case["precision"], "--global-batch", case["batch"], "--micro-batch", case["batch"]]
    if case["trainer"] == "train_bert":  # samples fill their sequences, without padding
        options += ["--data", "synthetic-resident", "--vocabulary-size", vocabulary]
    return trainer.Trainer(os.path.join(arguments.trainers, case["trainer"]), options, folder)


def measure(case, arguments, machine, folder):
    """Times the trainer alone, or in turns with its peer."""
    run = trainer_of(case, arguments, folder)
    row = {"case": case["name"], "precision": case["precision"], "batch": case["batch"], "steps": arguments.steps}
    ours, theirs, peak_bytes = [], [], 0
    if not arguments.alone:
        import torch

        import peers
        device = "cpu" if arguments.tiny else "cuda"
        row["peer"] = "torch.compile(max-autotune)" if arguments.compiled else "eager"
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        train = case["peer"](peers, device, vocabulary, arguments.compiled and not arguments.tiny)
        start = time.perf_counter()
        train(arguments.warm_up)
        row["peer_warm_up_s"] = time.perf_counter() - start
    for _ in range(1 if arguments.alone else arguments.rounds):
        steps = run.steps([], arguments.warm_up, arguments.steps, 300)
        ours.append(trainer.samples_per_s(steps))
        peak_bytes = max([peak_bytes, *(step.get("peak_memory_bytes", 0) for step in steps)])
        if not arguments.alone:
            train(2)
            start = time.perf_counter()
            train(arguments.steps)
            theirs.append(case["batch"] * arguments.steps / (time.perf_counter() - start))
    row.update({"dhp_samples_per_s": statistics.median(ours), "dhp_peak_memory_bytes": peak_bytes or None,
                "dhp_command": " ".join(run.command)})
    most = work.bound(machine, case["flop"], case["bytes"]) if machine else None
    if most:
        row.update({"bound_samples_per_s": most, "dhp_share_of_bound": row["dhp_samples_per_s"] / most})
    if not arguments.alone:
        peer = statistics.median(theirs)
        row.update({"peer_samples_per_s": peer, "peer_share_of_bound": peer / most, **ratio_of(ours, theirs),
                    "peer_peak_memory_bytes": torch.cuda.max_memory_reserved() if device == "cuda" else None})
    return row


def check_options(arguments):
    wrong = 0
    for case in chosen(arguments):
        command = trainer_of(case, arguments, "FOLDER").command + ["--steps", "1"]
        wrong |= trainer.check_options(command)
        print(" ".join(command))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=cases, required=True)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--machine", default="machine.json")
    arguments = trainer.parsed(parser)
    if arguments.dry_run:
        return check_options(arguments)
    machine = None
    if os.path.exists(arguments.machine) or not arguments.alone:
        with open(arguments.machine) as file:
            machine = json.load(file)

    def measurement(case):
        def in_a_folder():
            with tempfile.TemporaryDirectory() as folder:
                return measure(case, arguments, machine, folder)
        return {"case": case["name"], "precision": case["precision"]}, in_a_folder

    line = "%(case)-26s %(precision)s, %(peer)s: %(dhp_samples_per_s).5g against %(peer_samples_per_s).5g " \
           "samples/s, ratio %(ratio).3f, %(dhp_share_of_bound).2f of the bound"
    if arguments.alone:
        line = "%(case)-26s %(precision)s: %(dhp_samples_per_s).5g samples/s over %(steps)d steps"
    return measured(arguments.out, "rows", map(measurement, chosen(arguments)), line)


sys.exit(main())
