#!/usr/bin/env python3
"""score_images.py SCORE_RESNET50 TRAIN_RESNET50: the logits of a trained ResNet are the same in any layout and from any
kind of file, and give the trainer's top-1. Exits with 77 without numpy."""

import csv
import gzip
import json
import os
import pathlib
import struct
import sys
import zlib

try:
    import numpy
except ImportError:
    sys.exit(77)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import axes, ended, recorded, run, temporary_folder  # noqa: E402

SIZE, TRAINED, TESTED, CLASSES = 12, 96, 20, 3


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def png(image):
    """Returns a gray PNG of pixels [height, width]."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    height, width = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)) + \
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def pictures(random, count):
    """Returns images and labels; the class is the position of the bright part."""
    labels = numpy.arange(count) % CLASSES
    images = random.integers(0, 120, (count, SIZE, SIZE))
    for image, label in zip(images, labels):
        image[:, label * SIZE // CLASSES:(label + 1) * SIZE // CLASSES] += 40
    return images.astype(numpy.uint8), labels.astype(numpy.uint8)


def by_class(train, folder):
    """Folders of classes: a class may be named train, a test set may lack classes, and a loaded model keeps its
    normalization and the order of its classes."""
    names = ("left", os.fsdecode(b"m\xe9"), "train")  # the second is no UTF-8
    dark, labels = pictures(numpy.random.default_rng(2), 30)
    for to, images, classes in (("tree/train", dark, names), ("tree/Validation", dark[:12], ("left", "", "train")),
                                ("light", dark + 80, names), ("renamed", dark, ("right", *names[1:]))):
        for at, (image, label) in enumerate(zip(images, labels)):
            if classes[label]:
                path = folder / to / classes[label] / f"{at}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png(image))
    (folder / "tree" / "all.tar.gz").write_bytes(gzip.compress(b"as it was downloaded"))
    saved, exported, metrics = (folder / name for name in ("by-class", "by-class-weights", "by-class.jsonl"))

    def loss(*options):
        said = run(train, *options, "--metrics", metrics, "--overwrite")
        return recorded(metrics, "held_out_loss")[-1]["held_out_loss"], said
    trained, said = loss("--data", folder / "tree", "--image-size", SIZE, "--depth", 14, "--width", 4, "--stem-stride", 2,
                         "--global-batch", 6, "--micro-batch", 6, "--save", saved, "--export", exported)
    assert f"warning: {folder}/tree/Validation has no image of 1 of 3 classes, first: m\ufffd" in said, said
    assert "30 images in 3 folders" in said, said
    loss("--data", folder / "tree", "--image-size", SIZE, "--depth", 14, "--width", 4, "--samples", 10, "--evaluate-samples", 6,
         "--steps", 4, "--global-batch", 10, "--micro-batch", 10)
    assert recorded(metrics)[-1]["loss"] > 0.01  # the loss over all classes, not over the first alone
    for model in (saved, exported):
        found, said = loss("--load", model, "--evaluate-only", "--data", folder / "light", "--test-data", folder / "tree/Validation",
                        "--global-batch", 6, "--micro-batch", 6)
        assert abs(found - trained) < 1e-6 and "warning: class" not in said, (model, found, trained, said)
    said = run(train, "--load", saved, "--data", folder / "tree/Validation", "--steps", 9, status=1)
    assert f"--data {folder}/tree/Validation: has 2 classes, and {saved} has 3; --new-head begins" in said, said
    for options in ([], ["--new-head"]):
        said = run(train, "--load", exported, "--data", folder / "renamed", "--steps", 0, *options)
        other = f"warning: class 0 of the data is m\ufffd, and that of {exported} is left: " in said
        assert "30 images in 3 folders" in said and other != bool(options), said


def main():
    score, train = sys.argv[1:]
    with temporary_folder() as folder:
        random = numpy.random.default_rng(1)
        data = folder / "data"
        data.mkdir()
        for name, count in (("train", TRAINED), ("t10k", TESTED)):
            images, labels = pictures(random, count)
            (data / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
            (data / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels))
        saved = folder / "saved"
        run(train, "--data", data, "--classes", CLASSES, "--depth", 14, "--width", 4, "--stem-stride", 2, "--epochs", 3,
            "--tensor-parallel", 2, "--save", saved, "--export", folder / "exported", "--metrics", folder / "metrics.jsonl")
        top1 = recorded(folder / "metrics.jsonl", "held_out_top1")[-1]["held_out_top1"]

        def logits(model, source, *options):
            run(score, "--model", model, "--input", source, "--output", folder / "logits.npy", "--batch", 6,
                "--micro-batch", 3, *options)
            return numpy.load(folder / "logits.npy")

        whole = data / "t10k-images-idx3-ubyte.gz"
        expected = logits(saved, whole)
        assert expected.shape == (TESTED, CLASSES), expected.shape
        assert abs((expected.argmax(1) == labels).mean() - top1) < 1e-6, (expected, labels, top1)
        assert top1 > 0.5, top1  # the model has learned
        (folder / "plain").write_bytes(idx(images))
        numpy.save(folder / "images.npy", images[..., None])
        for at, image in enumerate(images):
            path = folder / "pngs" / ("early" if at < 4 else "late") / f"{at:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(image))
        for source in ("plain", "images.npy", "pngs"):
            assert (logits(saved, folder / source) == expected).all(), source
        assert (logits(saved, path) == expected[-1]).all(), path  # a file with one image
        newest = saved / (saved / "latest").read_text().strip()
        for model, layout in ((saved, (2, 2, 2)), (folder / "exported", (1, 3, 1)), (newest, (1, 1, 1))):
            apart = numpy.abs(logits(model, whole, *axes(layout)) - expected).max()
            assert apart < 1e-5, (model, layout, apart)
        double = logits(saved, whole, "--precision", "fp64")
        assert double.dtype == numpy.float64 and numpy.abs(double - expected).max() < 1e-5

        adapted, merged = folder / "adapted", folder / "merged"
        run(train, "--data", data, "--load", folder / "exported", "--classes", CLASSES, "--depth", 14, "--width", 4,
            "--stem-stride", 2, "--steps", 5, "--lora", "fc", "--lora-rank", 1, "--lr", 0.01, "--save", adapted, "--export", merged)
        assert numpy.abs(logits(adapted, whole) - logits(merged, whole)).max() < 1e-4

        rows = [json.loads(line) for line in ended(score, "--model", saved, "--input", whole).stdout.splitlines()]
        assert [row["best"] for row in rows] == [str(row.argmax()) for row in expected]
        run(score, "--model", saved, "--input", whole, "--output", folder / "rows.csv")
        with open(folder / "rows.csv", encoding="utf-8") as file:
            assert next(csv.reader(file)) == ["number", "0", "1", "2"]

        part = folder / "full.csv.part"
        part.symlink_to("/dev/full")
        said = ended(score, "--model", saved, "--input", whole, "--output", folder / "full.csv", status=1).stderr
        assert "No space left on device" in said and not part.is_symlink(), said

        def refused(words, model, source, *options):
            said = ended(score, "--model", model, "--input", source, *options, status=1).stderr
            assert words in said and said.count("\n") == 1, (words, said)
        (folder / "none").mkdir()
        numpy.save(folder / "number.npy", numpy.uint8(3))
        numpy.save(folder / "color.npy", numpy.zeros((2, SIZE, SIZE, 3), numpy.uint8))
        refused("there is no such file or directory", saved, folder / "nothing")
        refused("has no file", saved, folder / "none")
        refused("has no config.json", folder / "none", whole)
        refused("images of shape", saved, folder / "number.npy")
        refused("color.npy: has 3 channels; 1 would be right", saved, folder / "color.npy")
        (folder / "some.tar").write_bytes(bytes(257 * b"x" + b"ustar"))
        refused("some.tar, byte 2: not an IDX file: it is a tar archive", saved, folder / "some.tar")
        refused("this program reads .png .jpg .jpeg", saved, data)
        refused("holds no image that can be read", saved, data, "--skip-bad")
        (folder / "pngs" / "late" / "05.png").write_bytes(png(images[5])[:60])
        refused("late/05.png, byte 41: ", saved, folder / "pngs")
        said = run(score, "--model", saved, "--input", folder / "pngs", "--skip-bad", "--output", folder / "some.csv")
        assert "; 1 that cannot be read have no row: number 6; first: " in said, said
        numbers = [row[0] for row in csv.reader(open(folder / "some.csv", encoding="utf-8"))]
        assert numbers == ["number", *map(str, [*range(1, 6), *range(7, TESTED + 1)])], numbers
        config = folder / "exported" / "config.json"  # unlike a checkpoint's, it has no checksum
        text = config.read_text()
        for before, after, words in ((' "image_std"', ' "std"', "need a number for each of 1 channels"),
                                     ('"depth": 14', '"depth": 15', "no ResNet of depth 15"),
                                     ('"resnet"', '"bert"', "its model is bert"), ('"width": 4', '"width": 8', "another shape"),
                                     ('"width": 4', '"width": -4', '"width" is -4'),
                                     ('"stem_stride"', '"stride"', "was not written by train_resnet50"), ('"id2label"', '"labels"', "names no class")):
            assert before in text, before
            config.write_text(text.replace(before, after))
            refused(words, config.parent, whole)
        by_class(train, folder)
    print("score_resnet50 agrees with the trainer, and with itself")


main()
