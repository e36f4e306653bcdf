#!/usr/bin/env python3
"""classify.py TRAIN_BERT SCORE_BERT: a small BERT learns to classify sentences, fully trained, partly frozen and by
adapters, in several layouts. It stops early. Adapters are exported, loaded and merged. Each mistake has its error."""

import json
import pathlib
import random
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import losses, run  # noqa: E402

NAMES = {"good": "fine great lovely nice".split(), "bad": "awful poor sad ugly".split()}
SMALL = ["--task", "classify", "--sequence-length", "16", "--global-batch", "8", "--micro-batch", "2", "--lr", "0.002",
         "--lr-decay", "constant", "--deterministic"]
COLUMNS = ["--text-column", "text", "--label-column", "label"]


def rows(count, seed):
    draw, made = random.Random(seed), []
    for _ in range(count):
        label = draw.choice(list(NAMES))
        made.append(("the " + draw.choice("cat dog sea day".split()) + " is " + draw.choice(NAMES[label]), label))
    return made


class Programs:
    def __init__(self, train, score, folder):
        self.train_bert, self.score_bert, self.folder = train, score, pathlib.Path(folder)

    def train(self, *options, columns=COLUMNS, dropout=0, status=0):
        return run(self.train_bert, *SMALL, "--dropout", dropout, *columns, *options, cwd=self.folder, status=status)

    def losses(self, name):
        return losses(self.folder / name)

    def logits(self, *options, texts="test.txt"):
        run(self.score_bert, "--input", texts, "--predict", "logits", "--output", "logits.csv", *options, cwd=self.folder)
        with open(self.folder / "logits.csv", encoding="utf-8") as file:
            return [[float(value) for value in line.split(",")[1:]] for line in file.readlines()[1:]]


def apart(a, b):
    return max(abs(x - y) for left, right in zip(a, b) for x, y in zip(left, right))


def write_data(folder):
    train, test = rows(160, 1), rows(40, 2)
    (folder / "train.tsv").write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in train))
    (folder / "test.jsonl").write_text("".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in test))
    (folder / "test.txt").write_text("".join(a + "\n" for a, _ in test))
    pairs = [(a, b, "same" if la == lb else "other") for (a, la), (b, lb) in zip(train, reversed(train))]
    (folder / "pairs.csv").write_text("a,b,is\n" + "".join(f"{a},{b},{c}\n" for a, b, c in pairs))
    (folder / "renamed.tsv").write_text("text\tlabel\n" + "".join(f"{a}\t{b.replace('bad', 'no')}\n" for a, b in train))
    (folder / "odd.jsonl").write_text(json.dumps({"text": "x", "label": "odd"}) + "\n")
    (folder / "one.tsv").write_text("text\tlabel\na\tgood\nb\tgood\n")


def learns(programs):
    data = ["--data", "train.tsv", "--test-data", "test.jsonl"]
    said = programs.train(*data, "--steps", 60, "--save", "base", "--export", "base.whole", "--metrics", "base.jsonl",
                          "--evaluate-every", 10, "--stop-early", "accuracy", "--patience", 2)
    assert "stops early: accuracy was best after step" in said and "accuracy 1  f1 1  matthews 1" in said, said
    for layout in (["--data-parallel", 2], ["--pipeline-parallel", 2, "--schedule", "zero-bubble"]):
        programs.train(*data, "--steps", 4, "--metrics", "other.jsonl", "--overwrite", *layout)
        assert programs.losses("other.jsonl") == programs.losses("base.jsonl")[:4], layout
    of_ranks = []
    for ranks in 1, 2:
        said = programs.train(*data, "--steps", 4, "--metrics", "context.jsonl", "--overwrite", "--context-groups", 2,
                              "--context-parallel", ranks, "--data-parallel", ranks, dropout=0.3)
        of_ranks.append((programs.losses("context.jsonl"), re.findall("accuracy .*", said)))
    assert of_ranks[0] == of_ranks[1] and of_ranks[0][1], of_ranks
    said = programs.train("--data", "pairs.csv", "--test-data", "pairs.csv", "--steps", 20, "--save", "pairs",
                          columns=["--text-column", "a,b", "--label-column", "is"])
    same = [line.endswith("same") for line in (programs.folder / "pairs.csv").read_text().splitlines()[1:]]
    logits = programs.logits("--model", "pairs", "--text-column", "a,b", texts="pairs.csv")
    right = sum((row[1] > row[0]) == known for row, known in zip(logits, same)) / len(same)
    assert "2 classes" in said and f"accuracy {right:.4g} " in said.split("at the end")[1], (right, said)


def adapts(programs):
    """Trains adapters of one model on swapped labels."""
    text = (programs.folder / "train.tsv").read_text()
    (programs.folder / "turned.tsv").write_text(text.replace("\tgood", "\tX").replace("\tbad", "\tgood").replace("\tX", "\tbad"))
    begin = ["--data", "turned.tsv", "--load", "base.whole", "--lora", "query,value,dense", "--lora-rank", 4, "--steps", 20,
             "--evaluate-samples", 10]
    programs.train(*begin, "--save", "tuned", "--export", "merged", "--export-adapter", "adapter", "--metrics", "1.jsonl")
    for number, layout in enumerate((["--data-parallel", 2, "--zero", 2], ["--data-parallel", 2, "--pipeline-parallel", 2])):
        programs.train(*begin, *layout, "--metrics", f"layout{number}.jsonl")
        assert programs.losses(f"layout{number}.jsonl") == programs.losses("1.jsonl"), layout
    programs.train(*begin, "--tensor-parallel", 2, "--metrics", "split.jsonl")
    assert apart([programs.losses("split.jsonl")], [programs.losses("1.jsonl")]) < 1e-4
    unmerged = programs.logits("--model", "base.whole", "--adapter", "adapter")
    assert apart(unmerged, programs.logits("--model", "merged")) < 1e-4
    assert apart(unmerged, programs.logits("--model", "tuned", "--tensor-parallel", 2)) < 1e-4
    assert apart(unmerged, programs.logits("--model", "base.whole")) > 0.1
    said = programs.train("--data", "turned.tsv", "--load", "base.whole", "--adapter", "adapter", "--steps", 1)
    assert "left over are classifier.bias, classifier.weight" in said, said
    (programs.folder / "headless").mkdir()
    for file in (programs.folder / "base.whole").iterdir():
        (programs.folder / "headless" / file.name).write_bytes(file.read_bytes().replace(b"bert.pooler.dense", b"bert.pooled.dense"))
    said = programs.train("--data", "turned.tsv", "--load", "headless", *begin[4:], "--save", "none", "--export-adapter", "none", status=1)
    assert "has no bert.pooler.dense.bias, so it would get initial values, which --export-adapter does not write" in said, said
    said = programs.train("--data", "renamed.tsv", "--load", "base.whole", "--freeze", "bert.*", "--steps", 3, "--vocabulary-size", 90)
    assert "optimizer 2.30 kB" in said, said  # the head alone
    assert "renamed.tsv: its classes good, no use the head that the model has for bad, good, in this order; --new-head" in said, said
    assert "--vocabulary-size does nothing beside the words of --load" in said, said


WRONG = [
    (["--data", "one.tsv"], 1, "one.tsv: all its labels are good, and there is nothing to tell apart"),
    (["--data", "train.tsv", "--test-data", "odd.jsonl"], 1, "odd.jsonl, line 1: its label odd is not among the 2 of train.tsv"),
    (["--data", "train.tsv", "--lora", "qurey"], 1, "no linear layer of the model is called qurey"),
    (["--data", "train.tsv", "--freeze", "bert.layer.*"], 1, "--freeze bert.layer.*: no parameter of the model has such a name"),
    (["--data", "train.tsv", "--freeze", "*"], 1, "all of the model's parameters are frozen"),
    (["--data", "train.tsv", "--adapter", "adapter"], 2, "--adapter is for --load FILE.safetensors or a published folder"),
    (["--data", "train.tsv", "--stop-early", "f1"], 2, "--stop-early f1 needs evaluations during the run"),
    (["--data", "train.tsv", "--stop-early", "top1", "--evaluate-every", "2"], 1,
     "--stop-early top1: this model's evaluations measure loss, accuracy, f1, matthews"),
    (["--data", "train.tsv", "--preset", "mini", "--load", "base.whole"], 1, "leave --preset out"),
    (["--data", "nowhere.tsv"], 1, "nowhere.tsv: there is no such file"),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(*(str(pathlib.Path(path).resolve()) for path in sys.argv[1:]), folder)
        write_data(programs.folder)
        learns(programs)
        adapts(programs)
        for options, status, words in WRONG:
            said = programs.train("--steps", "2", *options, status=status)
            assert words in said, (options, said)
        said = programs.train("--data", "train.tsv", columns=["--text-column", "text", "--label-column", "lable"], status=1)
        assert "train.tsv has no column lable, but text, label" in said, said
    print("ok")


if __name__ == "__main__":
    main()
