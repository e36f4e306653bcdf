"""Training throughput of the example trainers against PyTorch on one GPU.

compare.py resnet|bert|compile_resnet|compile_bert OUT.json --machine FILE --trainers FOLDER [--tiny] [--dry-run]
Takes turns: a run of the trainer, some steps of the peer, and again; the ratio is that of the medians of the
rounds, above 1 where dhp is faster. Shares are of the bound of work.py. Results are written after each case.
--tiny: small models on the CPU, to try the script. --dry-run: only checks that the trainers take the options.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import trainer
import work
from rows import measured

vocabulary = 30522


def resnet_case(precision, batch, compiled=False, tiny=False):
    size, depth, width = (32, 50, 8) if tiny else (224, 50, 64)
    options = ["--data", "synthetic-resident", "--held-out", "0", "--image-size", size, "--depth", depth,
               "--width", width, "--optimizer", "sgd", "--lr", "0.1", "--label-smoothing", "0"]
    # The trainer's stem differs for small images, so --tiny gives no valid comparison.
    return {"name": "ResNet-50", "trainer": "train_resnet50", "options": options,
            "precision": precision, "batch": batch, "compiled": compiled,
            "peer": lambda peers, device, _: peers.resnet(device, precision, batch, size, width, compiled),
            "flop": work.resnet_flop, "bytes": work.resnet_bytes}


def bert_case(preset, length, batch, compiled=False):
    layers, hidden = {"tiny": (2, 128), "base": (12, 768), "large": (24, 1024)}[preset]
    masked = round(0.15 * length)
    options = ["--preset", preset, "--sequence-length", length, "--dropout", "0.1", "--optimizer", "adamw",
               "--lr", "0.0001", "--clip", "1", "--evaluate-samples", "1"]
    return {"name": "BERT-%s, %d tokens" % (preset, length), "trainer": "train_bert", "options": options,
            "precision": "bf16", "batch": batch, "compiled": compiled, "length": length,
            "peer": lambda peers, device, words: peers.bert(device, "bf16", batch, preset, length, words, masked,
                                                            compiled),
            "flop": work.bert_flop(layers, hidden, length, vocabulary, masked), "bytes": 0}


def cases(kind, tiny):
    if tiny:
        return {"resnet": [resnet_case("bf16", 2, tiny=True)], "bert": [bert_case("tiny", 32, 2)],
                "compile_resnet": [resnet_case("bf16", 2, tiny=True)],
                "compile_bert": [bert_case("tiny", 32, 2)]}[kind]
    return {"resnet": [resnet_case("fp16", 256), resnet_case("bf16", 256)],
            "bert": [bert_case("base", 128, 256), bert_case("base", 512, 64), bert_case("large", 128, 128),
                     bert_case("large", 512, 32)],
            # Compilation takes minutes for each.
            "compile_resnet": [resnet_case("fp16", 256, True)],
            "compile_bert": [bert_case("large", 512, 32, True)]}[kind]


def long_text(folder, length):
    """A text whose pairs of sentences fill every sample, with BERT's number of words: where the trainer's own
    made-up text is shorter, its samples would be less work than the peer's."""
    text, words = os.path.join(folder, "text.txt"), os.path.join(folder, "vocab.txt")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    with open(words, "w") as file:
        file.write("\n".join(special + ["w%d" % word for word in range(vocabulary - len(special))]) + "\n")
    draw = 1
    with open(text, "w") as file:
        for _ in range(512):
            for _ in range(4):
                sentence = []
                for _ in range(length):
                    draw = (draw * 1103515245 + 12345) % (1 << 31)
                    sentence.append("w%d" % ((draw >> 8) % (vocabulary - len(special))))
                file.write(" ".join(sentence) + "\n")
            file.write("\n")
    return ["--data", text, "--vocabulary", words, "--sentences", "lines", "--loader-threads", "4"]


class Dhp:
    def __init__(self, case, arguments, folder):
        self.case, self.timed, self.warm_up = case, arguments.steps, arguments.warm_up
        self.metrics = os.path.join(folder, "metrics.jsonl")
        self.peak_bytes = None
        self.command = [os.path.join(arguments.trainers, case["trainer"])] + [str(o) for o in case["options"]]
        self.command += ["--precision", case["precision"], "--global-batch", str(case["batch"]), "--micro-batch",
                         str(case["batch"]), "--metrics", self.metrics, "--lr-decay", "constant"]
        if case["trainer"] == "train_bert":
            resident = ["--data", "synthetic-resident", "--vocabulary-size", str(vocabulary)]
            said = "" if arguments.dry_run else self.run(resident, 1)
            full = re.search(r"vocabulary %d\b" % vocabulary, said)
            self.command += resident if full or arguments.dry_run else long_text(folder, case["length"])

    def run(self, more, steps):
        if os.path.exists(self.metrics):
            os.remove(self.metrics)
        done = subprocess.run(self.command + more + ["--steps", str(steps)], capture_output=True, text=True,
                              timeout=300)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1])
        return done.stderr

    def samples_per_s(self):
        """Of the steps after the warm-up, without those that fp16 skipped, which cost less."""
        self.run([], self.warm_up + self.timed)
        with open(self.metrics) as file:
            lines = [json.loads(line) for line in file]
        steps = [line for line in lines if "samples_per_s" in line]
        self.peak_bytes = max([line.get("peak_memory_bytes") or 0 for line in lines]) or None
        timed = [line for line in steps[self.warm_up:] if not line.get("skipped")]
        return len(timed) / sum(1 / line["samples_per_s"] for line in timed)


def measure(case, arguments, machine, folder):
    import torch

    import peers
    device = "cpu" if arguments.tiny else "cuda"
    row = {"case": case["name"], "precision": case["precision"], "batch": case["batch"],
           "peer": "torch.compile(max-autotune)" if case["compiled"] else "eager"}
    dhp = Dhp(case, arguments, folder)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    train = case["peer"](peers, device, vocabulary)
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
    for case in cases(arguments.kind, False):
        command = Dhp(case, arguments, "FOLDER").command + ["--steps", "1"]
        # For synthetic text too.
        more = ["--vocabulary", "--sentences", "--loader-threads"] if case["trainer"] == "train_bert" else []
        wrong |= trainer.check_options(command + more)
        print(" ".join(command))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["resnet", "bert", "compile_resnet", "compile_bert"])
    parser.add_argument("out")
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
    with open(arguments.machine) as file:
        machine = json.load(file)

    def measurement(case):
        def in_a_folder():
            with tempfile.TemporaryDirectory() as folder:
                return measure(case, arguments, machine, folder)
        return {"case": case["name"], "precision": case["precision"]}, in_a_folder

    return measured(arguments.out, "rows", map(measurement, cases(arguments.kind, arguments.tiny)),
                    "%(case)-26s %(precision)s, %(peer)s: %(dhp_samples_per_s).5g against %(peer_samples_per_s).5g "
                    "samples/s, ratio %(ratio).3f, %(dhp_share_of_bound).2f of the bound")


sys.exit(main())
