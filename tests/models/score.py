#!/usr/bin/env python3
"""score.py SCORE_BERT TRAIN_BERT: compares score_bert with a BERT in numpy, on small made-up models in the published
format: embeddings, logits of classes and of hidden words, weights in one file and in several, all kinds of layouts and
outputs. Also scores a checkpoint of train_bert. Exits with 77 without numpy."""

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    sys.exit(77)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import axes, ended, run  # noqa: E402

HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 24, 3, 6, 36, 20
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "cat", "##s", "sat", "mat", "the", "on"]
SENTENCES = ["The cats sat on the mat.", "Cat", "", "the [MASK] sat on [MASK].", "dog", "mat " * 30,
             "on the mats", "cat cat cat"]
EPSILON = 1e-3  # large enough to change results
LAYOUTS = ((1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 3), (2, 1, 2), (3, 2, 1))


def tokens(sentence):
    """Returns the tokens of a sentence, at most 10."""
    known = {"cats": [6, 7], "mats": [9, 7], "[mask]": [4]}
    ids = []
    for word in sentence.lower().replace(".", " .").split():
        ids += known.get(word) or [WORDS.index(word) if word in WORDS else 1]
    return [2] + ids[:8] + [3]


def weights(random):
    made = {}

    def linear(name, out, inputs):
        made[name + ".weight"] = random.normal(0, 0.3, (out, inputs))
        made[name + ".bias"] = random.normal(0, 0.3, out)

    def norm(name):
        made[name + ".gamma"] = random.normal(1, 0.3, HIDDEN)  # as TensorFlow spells it
        made[name + ".beta"] = random.normal(0, 0.3, HIDDEN)

    for table, rows in (("word", len(WORDS)), ("position", POSITIONS), ("token_type", 1)):
        made[f"embeddings.{table}_embeddings.weight"] = random.normal(0, 0.5, (rows, HIDDEN))
    norm("embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            linear(at + "attention.self." + part, HIDDEN, HIDDEN)
        linear(at + "attention.output.dense", HIDDEN, HIDDEN)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", INNER, HIDDEN)
        linear(at + "output.dense", HIDDEN, INNER)
        norm(at + "output.LayerNorm")
    linear("pooler.dense", HIDDEN, HIDDEN)
    return {name: value.astype(numpy.float32) for name, value in made.items()}


gelu = numpy.vectorize(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))))


class Bert:
    """BERT's encoder in double."""

    def __init__(self, of):
        self.of = {name: value.astype(float) for name, value in of.items()}

    def linear(self, name, x):
        return x @ self.of[name + ".weight"].T + self.of[name + ".bias"]

    def norm(self, name, x):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / numpy.sqrt(variance + EPSILON) * self.of[name + ".gamma"] + \
            self.of[name + ".beta"]

    def hidden(self, ids):
        x = self.of["embeddings.word_embeddings.weight"][ids] + \
            self.of["embeddings.position_embeddings.weight"][:len(ids)] + \
            self.of["embeddings.token_type_embeddings.weight"][0]
        x = self.norm("embeddings.LayerNorm", x)
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            q, k, v = (self.linear(at + "attention.self." + part, x)
                       .reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
                       for part in ("query", "key", "value"))
            scores = q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN / HEADS)
            shares = numpy.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            mixed = (shares @ v).transpose(1, 0, 2).reshape(len(ids), HIDDEN)
            x = self.norm(at + "attention.output.LayerNorm",
                          x + self.linear(at + "attention.output.dense", mixed))
            inner = gelu(self.linear(at + "intermediate.dense", x))
            x = self.norm(at + "output.LayerNorm", x + self.linear(at + "output.dense", inner))
        return x

    def mean(self, ids):
        return self.hidden(ids).mean(0)

    def classes(self, ids):
        pooled = numpy.tanh(self.linear("pooler.dense", self.hidden(ids)[0]))
        return self.linear("classifier", pooled)


def write_safetensors(path, tensors):
    head, at = {}, 0
    for name, value in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(value.shape),
                      "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(value.tobytes())


def publish(folder, tensors, architecture, shards=1, normalized=False):
    os.makedirs(folder + "/1_Pooling")
    config = {"model_type": "bert", "architectures": [architecture], "hidden_act": "gelu",
              "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "intermediate_size": INNER, "vocab_size": len(WORDS),
              "max_position_embeddings": POSITIONS, "type_vocab_size": 1,
              "layer_norm_eps": EPSILON, "id2label": {"0": "no", "1": "yes", "2": "per, haps"}}
    module = "sentence_transformers.models."
    files = {"config.json": config,
             "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": True},
             "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
             "modules.json": [{"type": module + "Transformer", "path": ""},
                              {"type": module + "Pooling", "path": "1_Pooling"}] +
             [{"type": module + "Normalize", "path": "2_Normalize"}] * normalized}
    for name, value in files.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            json.dump(value, file)
    with open(folder + "/vocab.txt", "w", encoding="utf-8") as file:
        file.write("".join(word + "\n" for word in WORDS))
    if shards == 1:
        write_safetensors(folder + "/model.safetensors", tensors)
        return folder
    index = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mine = dict(list(tensors.items())[shard::shards])
        write_safetensors(f"{folder}/{name}", mine)
        index.update({tensor: name for tensor in mine})
    with open(folder + "/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    return folder


class Scorer:
    def __init__(self, program, folder):
        self.program, self.folder, self.number = program, folder, 0
        self.input = folder + "/sentences.txt"
        with open(self.input, "w", encoding="utf-8") as file:
            file.write("".join(sentence + "\n" for sentence in SENTENCES))

    def run(self, model, *options, output=None, status=0):
        to = ["--output", output] if output else []
        return ended(self.program, "--model", model, "--input", self.input, *options, *to, status=status)

    def array(self, model, layout, *options):
        self.number += 1
        output = f"{self.folder}/{self.number}.npy"
        self.run(model, "--batch", "6", "--micro-batch", "2", *axes(layout), *options, output=output)
        return numpy.load(output)


def near(found, expected, tolerance, what):
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    apart = numpy.abs(found - expected).max()
    assert apart <= tolerance, (what, apart)


def embeddings(scorer, one, several, bert):
    expected = numpy.array([bert.mean(tokens(sentence)) for sentence in SENTENCES])
    for layout in LAYOUTS:
        near(scorer.array(one, layout), expected, 1e-5, layout)
    assert (scorer.array(several, (1, 1, 1), "--no-normalize") ==
            scorer.array(one, (1, 1, 1))).all()
    near(scorer.array(one, (1, 2, 1), "--precision", "fp64"), expected, 1e-12, "fp64")
    lengths = numpy.linalg.norm(expected, axis=1, keepdims=True)
    near(scorer.array(one, (2, 1, 1), "--normalize"), expected / lengths, 1e-5, "normalized")
    near(scorer.array(several, (1, 2, 1)), expected / lengths, 1e-5, "normalized, as it says")
    first = numpy.array([bert.hidden(tokens(sentence))[0] for sentence in SENTENCES])
    near(scorer.array(one, (1, 1, 2), "--pooling", "first"), first, 1e-5, "first token")
    # The same numbers in text formats.
    path = scorer.folder + "/rows.csv"
    scorer.run(one, output=path)
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][:2] == ["number", "e0"] and [row[0] for row in rows[1:]] == list("12345678")
    near(numpy.array([row[1:] for row in rows[1:]], float), expected, 1e-5, "csv")
    lines = scorer.run(one).stdout.splitlines()
    near(numpy.array([json.loads(line)["embedding"] for line in lines]), expected, 1e-5, "jsonl")


def classes(scorer, model, bert):
    expected = numpy.array([bert.classes(tokens(sentence)) for sentence in SENTENCES])
    for layout in ((1, 1, 1), (2, 3, 1)):
        near(scorer.array(model, layout), expected, 1e-5, layout)
    lines = [json.loads(line) for line in scorer.run(model).stdout.splitlines()]
    names = ["no", "yes", "per, haps"]
    assert [line["best"] for line in lines] == [names[row.argmax()] for row in expected]


def own_checkpoint(scorer, trainer):
    """Logits of hidden words are the same from a checkpoint and from exported weights, in any layout."""
    text, saved, exported = (scorer.folder + "/" + name for name in ("text.txt", "saved", "exported"))
    with open(text, "w", encoding="utf-8") as file:
        file.write("The cat sat on the mat. The mats sat on the cat. Cats sat.\n\n" * 60)
    run(trainer, "--data", text, "--vocabulary-size", 60, "--steps", 2, "--save", saved, "--save-every", 1, "--export", exported,
        "--sequence-length", 32, "--held-out", 0, "--tensor-parallel", 2)
    with open(saved + "/step-00000002/vocab.txt", encoding="utf-8") as file:
        words = len(file.read().splitlines())
    serial = scorer.array(saved, (1, 1, 1), "--predict", "logits")
    assert serial.shape == (2, words), serial.shape  # a row for each [MASK]
    for model, layout in ((saved, (2, 2, 1)), (exported, (1, 1, 2))):
        near(scorer.array(model, layout, "--predict", "logits"), serial, 1e-5, layout)
    vectors = scorer.array(exported, (1, 1, 1))
    assert vectors.shape == (len(SENTENCES), 128), vectors.shape
    evaluated = run(trainer, "--load", saved, "--evaluate-only", "--held-out", 0.2)
    assert "as loaded" in evaluated, evaluated
    run(trainer, "--load", exported + "/model.safetensors", "--data", text, "--vocabulary", exported + "/vocab.txt",
        "--steps", 0, "--save", scorer.folder + "/again")
    near(scorer.array(scorer.folder + "/again", (1, 1, 1), "--predict", "logits"), serial, 1e-5,
         "saved without a step")
    assert "warning" not in scorer.run(saved).stderr
    with open(exported + "/vocab.txt", encoding="utf-8") as file:
        fewer = file.read().splitlines()[:-1]  # a model may know more tokens than its tokenizer
    with open(exported + "/vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(fewer) + "\n")
    run(trainer, "--load", exported, "--data", text, "--steps", 1, "--sequence-length", 32, "--save", scorer.folder + "/more")
    for model in exported, scorer.folder + "/more":
        assert scorer.array(model, (1, 1, 1), "--predict", "logits").shape == (2, words)
    lines = [json.loads(line) for line in scorer.run(exported, "--predict", "logits").stdout.splitlines()]
    assert [len(line["logits"]) for line in lines] == [words, words], lines
    shard = saved + "/step-00000002/shard-00000.safetensors"
    with open(shard, "r+b") as file:
        file.seek(30)
        file.write(b"#")
    said = scorer.run(saved).stderr
    assert f"warning: {shard} is damaged: its header" in said and f"loaded {saved}/step-00000001; " in said, said


def refusals(scorer, one, folder):
    def refused(words, model, *options, output=None):
        said = scorer.run(model, *options, output=output, status=1).stderr
        assert words in said, (words, said)

    refused("no head that gives logits", one, "--predict", "logits")
    refused("error: cannot write --output", folder + "/no model", output=folder + "/nothing/x.npy")
    refused("none of .csv, .jsonl and .npy", one, output=folder + "/x.txt")
    refused("from 3 to 20 tokens", one, "--sequence-length", "21")
    refused("there is no such folder", folder + "/nothing")
    refused("cannot be split over a tensor axis of 4", one, "--tensor-parallel", "4")
    lacks = publish(folder + "/lacks", dict(list(weights(numpy.random.default_rng(2)).items())[:-4]),
                    "BertModel")
    refused("lacks weights of this model", lacks)
    assert not os.path.exists(folder + "/x.npy.part")
    of = weights(numpy.random.default_rng(2))
    said = scorer.run(publish(folder + "/deep", {**of, "encoder.layer.9.bias": next(iter(of.values()))}, "BertModel")).stderr
    assert f"{folder}/deep: left over are encoder.layer.9.bias, " in said, said
    cased = publish(folder + "/cased", of, "BertModel")
    with open(cased + "/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"do_lower_case": False}, file)
    refused("do_lower_case lowers letters before a tokenizer that does not", cased)


def unread(scorer, one):
    """A reader may stop before the last row, but a full disk is an error."""
    reader, closed = os.pipe()
    os.close(reader)
    for output, status in (closed, 0), (os.open("/dev/full", os.O_WRONLY), 1):
        done = subprocess.run([scorer.program, "--model", one, "--input", scorer.input], stdout=output, check=False)
        os.close(output)
        assert done.returncode == status, (done, status)


def main():
    program, trainer = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        random = numpy.random.default_rng(1)
        of = weights(random)
        one = publish(folder + "/one", of, "BertModel")
        several = publish(folder + "/several", of, "BertModel", 3, normalized=True)
        scorer = Scorer(program, folder)
        embeddings(scorer, one, several, Bert(of))
        with_head = {"bert." + name: value for name, value in of.items()}
        of["classifier.weight"] = random.normal(0, 1, (3, HIDDEN)).astype(numpy.float32)
        of["classifier.bias"] = random.normal(0, 1, 3).astype(numpy.float32)
        with_head.update({name: of[name] for name in ("classifier.weight", "classifier.bias")})
        classes(scorer, publish(folder + "/classes", with_head, "BertForSequenceClassification"),
                Bert(of))
        own_checkpoint(scorer, trainer)
        refusals(scorer, one, folder)
        unread(scorer, one)
    print("score_bert agrees with numpy, and with itself")


if __name__ == "__main__":
    main()
