#!/usr/bin/env python3
"""Fine-tuning of a published encoder, whole or by low-rank adapters, in several layouts of dhp beside PyTorch.

fine_tuning.py TRAIN_BERT SCORE_BERT SAMPLE_ORDER MODEL [--steps 200] [--kinds whole adapters]

MODEL: as for published.py. Python needs torch, transformers, peft and safetensors. The task is to tell which of
WordNet's 45 lexicographer files a gloss is from (Debian: wordnet-base). Both sides begin with the same weights, head
included, and see the same samples in the same order, without dropout, in fp32. Prints the largest relative difference
of a step's loss, and both accuracies. Then checks merged against unmerged adapters, the bytes of frozen weights, and
PEFT's reading of the adapter. Exits with status 1 beyond 1e-3 of a loss, 0.2 points of accuracy or 1e-4 of a logit.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import processes  # noqa: F401
from programs import axes, losses, recorded
from published import glosses, scored

LAYOUTS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 1, 2))
LENGTH, BATCH, TRAINED_ON, TESTED_ON = 64, 16, 4000, 1000
RATE = {"whole": 5e-5, "adapters": 1e-3}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.write("gloss\tfile\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


class Job:
    """Runs dhp's programs in a folder of its own."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        rows = [(text.replace("\t", " "), label) for text, label in glosses()]
        self.trained, self.tested = rows[:TRAINED_ON], rows[TRAINED_ON:TRAINED_ON + TESTED_ON]
        write_rows(folder + "/train.tsv", self.trained)
        write_rows(folder + "/test.tsv", self.tested)

    def path(self, name):
        return f"{self.folder}/{name}"

    def train(self, kind, name, layout, steps, more=()):
        """Returns the losses of all steps and the last evaluation."""
        adapters = ["--lora", "query,value"] if kind == "adapters" else []
        if "--adapter" in more:
            adapters = []
        command = [self.arguments.train_bert, "--task", "classify", "--data", self.path("train.tsv"),
                   "--test-data", self.path("test.tsv"), "--text-column", "gloss", "--label-column",
                   "file", "--sequence-length", LENGTH, "--dropout", 0, "--global-batch", BATCH,
                   "--micro-batch", BATCH // 2, "--lr", RATE[kind], "--lr-decay", "constant", "--steps",
                   steps, *axes(layout), "--metrics", self.path(name + ".jsonl"), "--save", self.path(name),
                   "--export", self.path(name + ".whole"), "--overwrite", *adapters, *more]
        if kind == "adapters":
            command += ["--export-adapter", self.path(name + ".adapter")]
        subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL)
        metrics = pathlib.Path(self.path(name + ".jsonl"))
        return losses(metrics), recorded(metrics, "held_out_accuracy")[-1]

    def logits(self, model, adapter=None):
        options = ["--predict", "logits", "--sequence-length", str(LENGTH)] + (["--adapter", adapter] if adapter else [])
        return scored(self.arguments.score_bert, model, [text for text, _ in self.tested], (1, 1, 1), options)


def by_torch(job, kind, steps):
    """Trains the same in PyTorch, from the weights that dhp exported before its first step."""
    import torch
    import transformers

    torch.manual_seed(0)
    start = job.path("start-" + kind)
    model = transformers.BertForSequenceClassification.from_pretrained(
        start + ".whole", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    if kind == "adapters":
        import peft
        model = peft.PeftModel.from_pretrained(model, start + ".adapter", is_trainable=True)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(job.arguments.model)
    plain = ("bias", "LayerNorm.weight")
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups = [{"params": [w for n, w in named if not n.endswith(plain)], "weight_decay": 0.01},
              {"params": [w for n, w in named if n.endswith(plain)], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE[kind])
    printed = subprocess.run([job.arguments.sample_order, str(TRAINED_ON), "0", "0"], check=True,
                             capture_output=True, text=True).stdout
    order = [int(line) for line in printed.split()]
    number = {label: at for at, label in enumerate(sorted({label for _, label in job.trained}))}

    def batch(rows):
        words = tokenizer([text for text, _ in rows], padding=True, truncation=True,
                          max_length=LENGTH, return_tensors="pt")
        return {**words, "labels": torch.tensor([number[label] for _, label in rows])}

    curve = []
    for step in range(steps):
        rows = [job.trained[at] for at in order[step * BATCH:(step + 1) * BATCH]]
        loss = model(**batch(rows)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([weight for _, weight in named], 1.0)
        optimizer.step()
        curve.append(loss.item())
    model.eval()
    right = 0
    with torch.no_grad():
        for first in range(0, TESTED_ON, 50):
            made = batch(job.tested[first:first + 50])
            right += (model(**made).logits.argmax(1) == made["labels"]).sum().item()
    return curve, right / TESTED_ON


def frozen_bytes_stay(job, name):
    """Returns whether a checkpoint's encoder still has the published bytes."""
    import safetensors.numpy
    published = safetensors.numpy.load_file(job.arguments.model + "/model.safetensors")
    folder = job.path(name)
    with open(folder + "/latest", encoding="utf-8") as file:
        shard = f"{folder}/{file.read().strip()}/shard-00000.safetensors"
    saved = safetensors.numpy.load_file(shard)
    compared = [key for key in published if "bert." + key in saved]
    same = all(published[key].tobytes() == saved["bert." + key].tobytes() for key in compared)
    return same and len(compared) > 90, len(compared)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("train_bert", "score_bert", "sample_order", "model"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kinds", nargs="+", choices=tuple(RATE), default=tuple(RATE))
    arguments = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        job = Job(arguments, folder)
        for kind in arguments.kinds:
            begin = ["--load", arguments.model]
            job.train(kind, "start-" + kind, (1, 1, 1), 0, begin)
            peer, peer_accuracy = by_torch(job, kind, arguments.steps)
            print(f"{kind}: PyTorch's loss {peer[0]:.4f} to {peer[-1]:.4f}, accuracy {peer_accuracy:.3f}", flush=True)
            for layout in LAYOUTS:
                start = ["--load", job.path("start-" + kind + ".whole")]
                if kind == "adapters":
                    start += ["--adapter", job.path("start-adapters.adapter")]
                name = f"{kind}-{'x'.join(map(str, layout))}"
                curve, found = job.train(kind, name, layout, arguments.steps, start)
                apart = max(abs(a - b) / b for a, b in zip(curve, peer))
                points = 100 * abs(found["held_out_accuracy"] - peer_accuracy)
                good &= len(curve) == arguments.steps and apart <= 1e-3 and points <= 0.2 + 1e-9
                print(f"  {'x'.join(map(str, layout))}: loss {curve[-1]:.4f}, largest relative difference "
                      f"{apart:.1e}; accuracy {found['held_out_accuracy']:.3f}, f1 {found['held_out_f1']:.3f}, "
                      f"matthews {found['held_out_matthews']:.3f}", flush=True)
        if "adapters" not in arguments.kinds:
            return 0 if good else 1
        name = "adapters-1x1x1"
        unmerged = job.logits(arguments.model, job.path(name + ".adapter"))
        for what, other in (("merged", job.logits(job.path(name + ".whole"))),
                            ("as saved", job.logits(job.path(name)))):
            apart = abs(other - unmerged).max()
            good &= bool(apart <= 1e-4)
            print(f"logits of {TESTED_ON} glosses, {what} beside published weights with the adapter: {apart:.1e} apart")
        same, compared = frozen_bytes_stay(job, name)
        good &= same
        print(f"{compared} frozen tensors have {'the published bytes' if same else 'OTHER BYTES'}")
        size = os.path.getsize(job.path(name + ".adapter/adapter_model.safetensors"))
        whole = os.path.getsize(job.path(name + ".whole/model.safetensors"))
        print(f"the adapter has {size / 1e6:.2f} MB, the model {whole / 1e6:.1f} MB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
