#!/usr/bin/env python3
"""export_onnx.py EXPORT_ONNX SCORE_BERT TRAIN_BERT SCORE_RESNET50 TRAIN_RESNET50: exported models have the same outputs
in onnxruntime and in dhp: BERT and ResNet from checkpoints of several layouts, and published BERTs, for several batch
sizes. Prints how often int8 and fp16 versions agree. Exits with 77 without numpy or onnxruntime."""

import json
import pathlib
import sys
import tempfile
import warnings

from score import HIDDEN, SENTENCES, WORDS, Bert, axes, ended, gelu, near, publish, run, tokens, weights

try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(f"not compared: {error}")
    sys.exit(77)

LAYOUTS = ((1, 1, 1), (2, 2, 1), (1, 2, 2))
TOLERANCE = 1e-5


class Model:
    """An ONNX file in onnxruntime."""

    def __init__(self, path):
        self.path = path
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.notes = self.session.get_modelmeta().custom_metadata_map

    @classmethod
    def exported(cls, program, model, path, *options):
        run(program, model, path, *options)
        return cls(path)

    def __call__(self, **inputs):
        return dict(zip(self.outputs, self.session.run(None, inputs)))

    def variants(self):
        """Yields (name, model) in fp16 and in int8, if the packages that convert models are installed."""
        try:
            import onnx
            from onnxconverter_common import float16
            warnings.simplefilter("ignore")  # it warns of each weight below fp16's range
            half = self.path.with_suffix(".fp16.onnx")
            onnx.save(float16.convert_float_to_float16(onnx.load(self.path), keep_io_types=True), half)
            yield "fp16", Model(half)
            from onnxruntime.quantization import quantize_dynamic
            short = self.path.with_suffix(".int8.onnx")
            quantize_dynamic(self.path, short)
            yield "int8", Model(short)
        except ImportError as error:
            print(f"  not compared in fp16 or int8: {error}")


def agreement(model, outputs, expected):
    """Prints how often variants make the same choices as fp32; outputs(model): [rows, choices]."""
    for name, variant in model.variants():
        found = outputs(variant)
        share = (found.argmax(-1) == expected.argmax(-1)).mean()
        apart = numpy.abs(found - expected).max()
        print(f"  {name}: top-1 as in fp32 for {share:.1%} of {len(found)} rows, largest difference {apart:.1e}")
        assert name != "fp16" or apart < 0.03 * numpy.abs(expected).max(), (name, apart)


# ResNet.


def images_through(model, images, batch):
    pixels = (images.astype(numpy.float32) / 255).transpose(0, 3, 1, 2)
    return numpy.concatenate([model(pixels=pixels[at:at + batch])["logits"]
                              for at in range(0, len(images), batch)])


def resnet(export, score, train, folder, size, layout, *options):
    name = "resnet-" + "x".join(map(str, layout)) + f"-{size}"
    run(train, "--depth", 14, "--width", 8, "--image-size", size, "--classes", 5, "--samples", 48, "--held-out", 0,
        "--steps", 3, "--global-batch", 16, "--micro-batch", 8, *axes(layout), "--save", folder / name, *options)
    images = numpy.random.default_rng(1).integers(0, 256, (23, size, size, 3), numpy.uint8)
    numpy.save(folder / "images.npy", images)
    run(score, "--model", folder / name, "--input", folder / "images.npy", "--output", folder / "logits.npy")
    expected = numpy.load(folder / "logits.npy")
    model = Model.exported(export, folder / name, folder / (name + ".onnx"))
    for batch in (1, 5, 23):
        near(images_through(model, images, batch), expected, TOLERANCE, (name, batch))
    assert model.notes["image_size"] == str(size) and json.loads(model.notes["labels"]) == list("01234"), model.notes
    print(f"{name}: logits up to {numpy.abs(expected).max():.2f}, apart by at most "
          f"{numpy.abs(images_through(model, images, 23) - expected).max():.1e}")
    return model, images, expected


# BERT.


def padded(rows):
    """Returns input_ids, attention_mask and token_type_ids for rows of different lengths."""
    longest = max(map(len, rows))
    ids, mask = (numpy.zeros((len(rows), longest), numpy.int64) for _ in range(2))
    for at, row in enumerate(rows):
        ids[at, :len(row)], mask[at, :len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}


def sentences_through(model, output, rows, batch):
    """Returns the model's output for each row: for each token without padding, or one value for the whole row."""
    found = []
    for at in range(0, len(rows), batch):
        inputs = padded(rows[at:at + batch])
        values = model(**inputs)[output]
        per_token = values.ndim == 3
        found += [value[:len(row)] if per_token else value for row, value in zip(rows[at:at + batch], values)]
    return found


def masked(found, rows):
    """Returns the values at the places of [MASK]."""
    return numpy.array([value[at] for row, value in zip(rows, found) for at, token in enumerate(row)
                        if token == WORDS.index("[MASK]")])


def bert(export, score, train, folder, layout):
    name = "bert-" + "x".join(map(str, layout))
    run(train, "--data", folder / "text.txt", "--vocabulary", folder / "vocab.txt", "--held-out", 0, "--steps", 3,
        "--sequence-length", 32, *axes(layout), "--save", folder / name)
    rows = [tokens(sentence) for sentence in SENTENCES]
    for predict, output in (("logits", "prediction_logits"), ("embeddings", "sentence_embedding")):
        run(score, "--model", folder / name, "--input", folder / "sentences.txt", "--sequence-length", 10,
            "--predict", predict, "--output", folder / "expected.npy")
        expected = numpy.load(folder / "expected.npy")
        model = Model.exported(export, folder / name, folder / f"{name}-{predict}.onnx", "--predict", predict)
        for batch in (1, 3, len(rows)):
            found = sentences_through(model, output, rows, batch)
            found = masked(found, rows) if predict == "logits" else numpy.array(found)
            near(found, expected, TOLERANCE, (name, predict, batch))
        print(f"{name}: {predict} up to {numpy.abs(expected).max():.2f}, apart by at most "
              f"{numpy.abs(found - expected).max():.1e}")
    return Model(folder / f"{name}-logits.onnx"), rows


def published(export, score, folder):
    """Compares with a BERT in numpy."""
    random = numpy.random.default_rng(3)
    of = weights(random)
    rows = [tokens(sentence) for sentence in SENTENCES]
    encoder = Bert(of)
    hidden = [encoder.hidden(row) for row in rows]
    several = publish(str(folder / "encoder"), of, "BertModel", 3, normalized=True)
    model = Model.exported(export, several, folder / "encoder.onnx")
    means = numpy.array([row.mean(0) for row in hidden])
    means /= numpy.linalg.norm(means, axis=1, keepdims=True)
    near(numpy.array(sentences_through(model, "sentence_embedding", rows, 4)), means, TOLERANCE, "normalized means")
    for found, expected in zip(sentences_through(model, "last_hidden_state", rows, 4), hidden):
        near(found, expected, TOLERANCE, "last hidden states")
    assert model.notes == {"max_sequence_length": "10"}, model.notes

    pooled = numpy.tanh(encoder.linear("pooler.dense", numpy.array([row[0] for row in hidden])))
    extra = {"classifier.weight": (3, HIDDEN), "classifier.bias": (3,), "cls.seq_relationship.weight": (2, HIDDEN),
             "cls.seq_relationship.bias": (2,), "cls.predictions.transform.dense.weight": (HIDDEN, HIDDEN),
             "cls.predictions.transform.dense.bias": (HIDDEN,), "cls.predictions.transform.LayerNorm.gamma": (HIDDEN,),
             "cls.predictions.transform.LayerNorm.beta": (HIDDEN,), "cls.predictions.bias": (len(WORDS),)}
    of.update({name: random.normal(0, 0.5, shape).astype(numpy.float32) for name, shape in extra.items()})
    full = {name if name in extra else "bert." + name: value for name, value in of.items()}
    heads = Bert(of)
    model = Model.exported(export, publish(str(folder / "classes"), full, "BertForSequenceClassification"),
                           folder / "classes.onnx")
    near(numpy.array(sentences_through(model, "logits", rows, 5)), heads.linear("classifier", pooled), TOLERANCE, "classes")
    assert json.loads(model.notes["labels"]) == ["no", "yes", "per, haps"], model.notes

    model = Model.exported(export, publish(str(folder / "heads"), full, "BertForPreTraining"), folder / "heads.onnx",
                           "--predict", "logits")
    near(numpy.array(sentences_through(model, "seq_relationship_logits", rows, 5)),
         heads.linear("cls.seq_relationship", pooled), TOLERANCE, "next sentences")
    name = "cls.predictions.transform."
    for found, row in zip(sentences_through(model, "prediction_logits", rows, 5), hidden):
        inner = heads.norm(name + "LayerNorm", gelu(heads.linear(name + "dense", row)))
        near(found, inner @ heads.of["embeddings.word_embeddings.weight"].T + heads.of["cls.predictions.bias"],
             3 * TOLERANCE, "words")  # up to 10 or so
    alone = {name: value for name, value in full.items() if "pooler" not in name and "seq_relationship" not in name}
    words = Model.exported(export, publish(str(folder / "words"), alone, "BertForMaskedLM"), folder / "words.onnx",
                           "--predict", "logits")
    found = sentences_through(words, "prediction_logits", rows, 5)
    for one, other in zip(found, sentences_through(model, "prediction_logits", rows, 5)):
        near(one, other, TOLERANCE, "words without the next sentence")
    run(score, "--model", folder / "words", "--input", folder / "sentences.txt", "--predict", "logits",
        "--output", folder / "expected.npy")
    near(masked(found, rows), numpy.load(folder / "expected.npy"), 3 * TOLERANCE, "words by score_bert")
    print("published BERTs: as numpy has them")


def fine_tuned(export, score, train, folder):
    """The encoder of published() with adapters, which the exported file has merged into its weights."""
    classes = ("one", "two")
    with open(folder / "rows.tsv", "w", encoding="utf-8") as file:
        file.write("text\tlabel\n")
        for at in range(40):
            file.write(f"{'The cat sat.' if at % 3 else 'On the mats.'}\t{classes[at % 3 == 0]}\n")
    begin = ["--task", "classify", "--data", folder / "rows.tsv", "--text-column", "text", "--label-column", "label",
             "--load", folder / "encoder", "--sequence-length", 10, "--steps", 4, "--global-batch", 8, "--micro-batch", 4,
             "--lr", 0.01, "--held-out", 0]
    for name, options in (("whole", []), ("adapted", ["--lora", "query,value,dense", "--lora-rank", 4, "--lora-alpha", 24,
                                                      "--tensor-parallel", 2])):
        run(train, *begin, *options, "--save", folder / name)
        run(score, "--model", folder / name, "--input", folder / "sentences.txt", "--sequence-length", 10, "--output",
            folder / "expected.npy")
        expected = numpy.load(folder / "expected.npy")
        model = Model.exported(export, folder / name, folder / f"{name}.onnx")
        found = numpy.array(sentences_through(model, "logits", [tokens(sentence) for sentence in SENTENCES], 3))
        near(found, expected, TOLERANCE, name)
        assert json.loads(model.notes["labels"]) == ["one", "two"], model.notes
        print(f"fine-tuned, {name}: logits up to {numpy.abs(expected).max():.2f}, apart by at most "
              f"{numpy.abs(found - expected).max():.1e}")


def refusals(export, folder, resnet_checkpoint):
    def refused(words, *arguments):
        said = ended(export, *arguments, status=1).stderr
        assert words in said.splitlines()[-1] and said.count("error: ") == 1, (words, said)

    output = folder / "kept.onnx"
    output.write_text("kept")
    (folder / "empty").mkdir()
    refused("has no config.json", folder / "empty", output)
    refused("there is no such folder or file", folder / "nothing", output)
    refused("the output's name ends in .onnx", folder / "encoder", folder / "encoder" / "model.safetensors")
    refused("is a ResNet, which gives logits", resnet_checkpoint, output, "--predict", "embeddings")
    refused("this model has no head that gives logits", folder / "encoder", output, "--predict", "logits")
    (folder / "empty" / "config.json").write_text('{"model_type": "t5"}')
    refused("its model is t5; dhp has bert, gpt2, llama and resnet", folder / "empty", output)
    config = json.loads((folder / "encoder" / "config.json").read_text())
    config.update(hidden_size=4098, intermediate_size=16384)
    (folder / "empty" / "config.json").write_text(json.dumps(config))
    refused("MiB of weights in fp32, and an ONNX file holds 2032", folder / "empty", output)
    shard = next((resnet_checkpoint / "step-00000003").glob("shard-*"))
    data = bytearray(shard.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin::64] = bytes(byte ^ 1 for byte in data[begin::64])
    shard.write_bytes(bytes(data))
    refused("is damaged", resnet_checkpoint, output)
    assert output.read_text() == "kept" and not (folder / "kept.onnx.part").exists()
    refused("cannot open", folder / "encoder", folder / "nowhere" / "x.onnx")


def main():
    export, score_bert, train_bert, score_resnet, train_resnet = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "vocab.txt").write_text("".join(word + "\n" for word in WORDS))
        (folder / "sentences.txt").write_text("".join(sentence + "\n" for sentence in SENTENCES))
        (folder / "text.txt").write_text("The cat sat on the mat. The mats sat on the cat. Cats sat.\n\n" * 60)
        published(export, score_bert, folder)
        fine_tuned(export, score_bert, train_bert, folder)
        for layout in LAYOUTS:
            model, rows = bert(export, score_bert, train_bert, folder, layout)

        def all_words(of):
            return numpy.concatenate(sentences_through(of, "prediction_logits", rows, 8))
        agreement(model, all_words, all_words(model))

        resnet(export, score_resnet, train_resnet, folder, 72, (1, 1, 1))  # uses the stem for large images
        resnet(export, score_resnet, train_resnet, folder, 16, (1, 1, 1), "--stem-stride", 2, "--precision", "bf16")
        resnet(export, score_resnet, train_resnet, folder, 20, (1, 1, 1), "--lora", "fc", "--lora-rank", 2, "--lr", 0.001)
        for layout in LAYOUTS:
            model, images, expected = resnet(export, score_resnet, train_resnet, folder, 32, layout)
        agreement(model, lambda of: images_through(of, images, 23), expected)
        refusals(export, folder, folder / "resnet-1x2x2-32")


main()
