"""Training throughput of the example trainers against PyTorch on one GPU.

compare.py OUT.json --only CASE... --machine FILE --trainers FOLDER [--compiled | --alone] [--tiny] [--dry-run]
Takes turns: a run of the trainer, some steps of the peer, and again; the ratio is that of the medians of the
rounds, above 1 where dhp is faster. Shares are of the bound of work.py. Results are written after each case.
--compiled: against torch.compile(max-autotune). --alone: the trainer by itself, without PyTorch.
--tiny: small models on the CPU, to try the script. --dry-run: only checks that the trainers take the options.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import trainer
import work
from rows import measured

vocabulary = 30522


def resnet_case(precision, batch, tiny=False):
    size, depth, width = (32, 50, 8) if tiny else (224, 50, 64)
    options = ["--data", "synthetic-resident", "--held-out", "0", "--image-size", size, "--depth", depth,
               "--width", width, "--optimizer", "sgd", "--lr", "0.1", "--label-smoothing", "0"]
    # The trainer's stem differs for small images, so --tiny gives no valid comparison.
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


class Dhp:
    def __init__(self, case, arguments, folder):
        self.case, self.timed, self.warm_up = case, arguments.steps, arguments.warm_up
        self.metrics = os.path.join(folder, "metrics.jsonl")
        self.peak_bytes = None
        self.command = [os.path.join(arguments.trainers, case["trainer"])] + [str(o) for o in case["options"]]
        self.command += ["--precision", case["precision"], "--global-batch", str(case["batch"]), "--micro-batch",
                         str(case["batch"]), "--metrics", self.metrics, "--lr-decay", "constant"]
        if case["trainer"] == "train_bert":  # samples fill all rows
            self.command += ["--data", "synthetic-resident", "--vocabulary-size", str(vocabulary)]

    def samples_per_s(self):
        """Of the steps after the warm-up, without those that fp16 skipped, which cost less."""
        if os.path.exists(self.metrics):
            os.remove(self.metrics)
        done = subprocess.run([*self.command, "--steps", str(self.warm_up + self.timed)], capture_output=True,
                              text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1])
        with open(self.metrics) as file:
            lines = [json.loads(line) for line in file]
        steps = [line for line in lines if "samples_per_s" in line]
        self.peak_bytes = max([line.get("peak_memory_bytes") or 0 for line in lines]) or None
        timed = [line for line in steps[self.warm_up:] if not line.get("skipped")]
        return len(timed) / sum(1 / line["samples_per_s"] for line in timed)


def alone(case, arguments, machine, folder):
    """The trainer's steps by themselves."""
    dhp = Dhp(case, arguments, folder)
    row = {"case": case["name"], "precision": case["precision"], "batch": case["batch"], "steps": arguments.steps,
           "dhp_samples_per_s": dhp.samples_per_s()}
    if machine:
        row["dhp_share_of_bound"] = row["dhp_samples_per_s"] / work.bound(machine, case["flop"], case["bytes"])
    return {**row, "dhp_peak_memory_bytes": dhp.peak_bytes, "dhp_command": " ".join(dhp.command)}


def measure(case, arguments, machine, folder):
    if arguments.alone:
        return alone(case, arguments, machine, folder)
    import torch

    import peers
    device = "cpu" if arguments.tiny else "cuda"
    row = {"case": case["name"], "precision": case["precision"], "batch": case["batch"],
           "peer": "torch.compile(max-autotune)" if arguments.compiled else "eager"}
    dhp = Dhp(case, arguments, folder)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    train = case["peer"](peers, device, vocabulary, arguments.compiled and not arguments.tiny)
    start = time.perf_counter()
    train(arguments.warm_up)
    row["peer_warm_up_s"] = time.perf_counter() - start
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(dhp.samples_per_s())
        train(2)
        start = time.perf_counter()
        train(arguments.steps)
        theirs.append(case["batch"] * arguments.steps / (time.perf_counter() - start))
    most = work.bound(machine, case["flop"], case["bytes"])
    mine, peer = statistics.median(ours), statistics.median(theirs)
    row.update({"dhp_samples_per_s": mine, "peer_samples_per_s": peer, "ratio": mine / peer,
                "ratio_least": min(a / b for a, b in zip(ours, theirs)),
                "ratio_most": max(a / b for a, b in zip(ours, theirs)),
                "bound_samples_per_s": most, "dhp_share_of_bound": mine / most, "peer_share_of_bound": peer / most,
                "dhp_peak_memory_bytes": dhp.peak_bytes, "rounds": arguments.rounds,
                "peer_peak_memory_bytes": torch.cuda.max_memory_reserved() if device == "cuda" else None,
                "dhp_command": " ".join(dhp.command)})
    return row


def check_options(arguments):
    wrong = 0
    for case in chosen(arguments):
        command = Dhp(case, arguments, "FOLDER").command + ["--steps", "1"]
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
    parser.add_argument("--trainers", default="build/cuda/examples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
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
