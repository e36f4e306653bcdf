#!/usr/bin/env python3
"""shards.py TRAIN_RESNET50 [PHOTOS]: the same images in a folder of classes, in tar and in TFRecord shards give the
same losses, to the bit. Also tests windows, replicas, index, cache and damage of shards. Python's tarfile and the
packages webdataset and tfrecord, if installed, write the shards. PHOTOS: a folder of classes with images to use instead
of drawn ones. Exit status 77: all tests passed, but one of the packages is not installed."""

import json
import pathlib
import random
import re
import shutil
import struct
import sys
import tarfile
import io
import zlib

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import ended, losses, package, temporary_folder  # noqa: E402

RUN = ["--depth", "14", "--width", "8", "--image-size", "16", "--global-batch", "8", "--micro-batch", "2", "--epochs", "2",
       "--deterministic", "--augment", "--overwrite", "--metrics", "metrics.jsonl"]


def png(width, height, seed, more=()):
    noise = random.Random(seed)
    rows = b"".join(b"\0" + bytes(noise.randrange(256) for _ in range(3 * width)) for _ in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)


def samples_of(photos):
    """Returns (label, extension, bytes) of each image, in the order of a folder of classes."""
    if photos is None:
        return [(label, "png", png(16 + number, 20, 10 * label + number)) for label in range(3) for number in range(8)]
    folders = sorted(path for path in pathlib.Path(photos).iterdir() if path.is_dir())
    return [(label, file.suffix[1:].lower(), file.read_bytes()) for label, folder in enumerate(folders) for file in sorted(folder.iterdir())]


def parts(samples):
    half = len(samples) // 2
    return [samples[:half], samples[half:]]


def write_folder(root, samples):
    for number, (label, extension, image) in enumerate(samples):
        (root / f"class{label}").mkdir(parents=True, exist_ok=True)
        (root / f"class{label}" / f"{number:04}.{extension}").write_bytes(image)


def add(tar, name, contents):
    member = tarfile.TarInfo(name)
    member.size = len(contents)
    tar.addfile(member, io.BytesIO(contents))


def write_tar(root, samples, form, prefix="", json_label=False):
    root.mkdir()
    for shard, part in enumerate(parts(samples)):
        with tarfile.open(root / f"{shard:06}.tar", "w", format=form) as tar:
            for number, (label, extension, image) in enumerate(part):
                of_label = ("json", json.dumps({"caption": "x", "label": label}).encode()) if json_label else ("cls", str(label).encode())
                for ending, contents in ((extension, image), of_label):
                    add(tar, f"{prefix}{number:06}.{ending}", contents)


def write_webdataset(webdataset, root, samples):
    root.mkdir()
    with webdataset.ShardWriter(str(root / "%06d.tar"), maxcount=len(samples) // 2, verbose=0) as writer:
        for number, (label, extension, image) in enumerate(samples):
            writer.write({"__key__": f"{number:06}", extension: image, "cls": label})


def write_tfrecord(tfrecord, root, samples):
    """Writes shards with ImageNet's names and labels from 1."""
    root.mkdir()
    for shard, part in enumerate(parts(samples)):
        writer = tfrecord.TFRecordWriter(str(root / f"train-{shard:05}-of-00002"))
        for number, (label, extension, image) in enumerate(part):
            writer.write({"image/height": (16, "int"), "image/encoded": (image, "byte"), "image/class/label": (label + 1, "int"),
                          "image/filename": (f"{number}.{extension}".encode(), "byte")})
        writer.close()


def run(program, folder, data, *options, status=0):
    said = ended(program, "--data", data, "--test-data", data, *RUN, *options, cwd=folder, status=status).stderr
    return losses(folder / "metrics.jsonl") if status == 0 else [], said


def read_bytes(said):
    return int(re.search(r"images: (\d+) bytes were read from", said)[1])


def check_formats(program, folder, samples, written):
    of_folder, _ = run(program, folder, folder / "folder")
    assert len(of_folder) == 2 * ((len(samples) + 7) // 8), of_folder
    for name in written:
        found, said = run(program, folder, folder / name)
        assert found == of_folder, (name, found, of_folder)
        kind, first = ("TFRecord", 1) if name == "tfrecord" else ("tar", 0)
        assert f"({len(samples)} images in 2 {kind} shards, labels from {first}, index made)" in said, said
        found, said = run(program, folder, folder / name)
        assert found == of_folder and ", index read)" in said, said


def check_order_and_cache(program, folder):
    whole, _ = run(program, folder, folder / "ustar")
    window, said = run(program, folder, folder / "ustar", "--shuffle-window", 9)
    assert window != whole
    of_two, _ = run(program, folder, folder / "ustar", "--shuffle-window", 9, "--data-parallel", 2)
    assert window == of_two
    of_two, _ = run(program, folder, folder / "ustar", "--shuffle-window", 9, "--pipeline-parallel", 2)
    assert window == of_two
    once = sum(path.stat().st_size for path in (folder / "ustar").glob("*.tar"))
    for more in (once, 0):  # both epochs, and the next run
        found, said = run(program, folder, folder / "ustar", "--cache", "cache", "--shuffle-window", 9)
        assert found == window and read_bytes(said) == more, (said, more)
    assert sum(path.stat().st_size for path in (folder / "cache").iterdir()) == once
    found, said = run(program, folder, folder / "ustar", "--cache", "metrics.jsonl", "--shuffle-window", 9)
    assert found == window and said.count("warning: the cache takes no more blocks") == 1, said


def check_damage(program, folder, samples):
    write_tar(folder / "torn", samples, tarfile.USTAR_FORMAT)
    last = folder / "torn" / "000001.tar"
    last.write_bytes(last.read_bytes()[:last.stat().st_size // 2])
    _, said = run(program, folder, folder / "torn", "--skip-bad")
    assert re.search(r"damaged parts? (is|are) left out, first: .*/torn/000001.tar, byte \d+: ", said), said
    write_tar(folder / "many", [(2_000_000_000, *samples[0][1:])] * 2, tarfile.USTAR_FORMAT)
    _, said = run(program, folder, folder / "many", status=1)
    assert "has labels up to 2000000000, which is too many to be likely" in said, said
    write_tar(folder / "vast", [(2**63, *samples[0][1:])] * 2, tarfile.USTAR_FORMAT, json_label=True)
    _, said = run(program, folder, folder / "vast", status=1)
    assert 'its "label" is 9223372036854775808, beyond 2^63' in said, said
    shutil.copytree(folder / "ustar", folder / "wrong")
    shard = folder / "wrong" / "000000.tar"
    with shard.open("r+b") as file:
        file.seek(512)  # where its first image begins
        file.write(b"damaged" * 8)
    _, said = run(program, folder, folder / "wrong", "--normalize", "imagenet", status=1)
    assert re.search(r"/wrong/000000.tar, byte 512: .*its key is 000000\.\w+; --skip-bad leaves out what is damaged\n$", said), said


def check_others(program, folder, samples):
    """Members that are no sample are reported, files beside shards are ignored, and --exif rotates images."""
    def write(path, members, mode="w"):
        path.parent.mkdir()
        with tarfile.open(path, mode) as tar:
            for name, contents in members:
                add(tar, name, contents)
    good = [(f"v1.0/{number}.{ending}", contents) for number, (label, _, image) in enumerate(samples)
            for ending, contents in (("PNG", image), ("Cls", str(label).encode()))]
    odd = [("._a.png", b"x"), ("a.b.png", samples[0][2]), ("a.b.cls", b"1"), ("README", b"words")]
    write(folder / "odd" / "A.TAR", good + odd)
    for name in ("A.TAR.idx", "A.idx", "A.tar.md5", "sizes.json", "x.tfrecord.index"):
        (folder / "odd" / name).write_bytes(b"0 1\n")
    for index in ("made", "read"):
        _, said = run(program, folder, folder / "odd")
        assert re.search(rf"\({len(samples)} images in 1 tar shard, labels from 0, index {index}, 3 members of no sample "
                         r"\(NAME.png with NAME.cls or NAME.json\) left out, first: .*A.TAR: a.b.png\)", said), said
    write(folder / "packed" / "a.tgz", good, "w:gz")
    _, said = run(program, folder, folder / "packed", status=1)
    assert "a.tgz, byte 0: is compressed by gzip (gunzip unpacks it); samples are read in any order" in said, said
    write_folder(folder / "above" / "all", samples)
    _, said = run(program, folder, folder / "above")
    assert "warning: all images are of one class, all, and there is nothing to tell apart; is --data" in said, said
    tiff = b"MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6" + bytes(6)
    for turned in (False, True):
        write_folder(folder / f"exif{turned}", [(label, "png", png(20, 16, number, [(b"eXIf", tiff)] if turned else []))
                                                for number, (label, _, _) in enumerate(samples)])
    plain, said = run(program, folder, folder / "exifFalse")
    assert "EXIF" not in said, said
    found, said = run(program, folder, folder / "exifTrue")
    assert found == plain and f"warning: an EXIF orientation is not applied to {len(samples)} of the images that were read; --exif" in said, said
    found, said = run(program, folder, folder / "exifTrue", "--exif")
    assert found != plain and "warning" not in said, said


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    samples = samples_of(sys.argv[2] if len(sys.argv) > 2 else None)
    webdataset, tfrecord = package("webdataset"), package("tfrecord")
    with temporary_folder() as folder:
        write_folder(folder / "folder", samples)
        write_tar(folder / "ustar", samples, tarfile.USTAR_FORMAT)
        write_tar(folder / "gnu", samples, tarfile.GNU_FORMAT, prefix="d" * 120 + "/", json_label=True)
        write_tar(folder / "pax", samples, tarfile.PAX_FORMAT, prefix="d" * 120 + "/")
        written = ["ustar", "gnu", "pax"]
        if webdataset:
            write_webdataset(webdataset, folder / "webdataset", samples)
            written.append("webdataset")
        if tfrecord:
            write_tfrecord(tfrecord, folder / "tfrecord", samples)
            written.append("tfrecord")
        check_formats(program, folder, samples, written)
        check_order_and_cache(program, folder)
        check_damage(program, folder, samples)
        check_others(program, folder, samples)
    print(f"{len(samples)} images: the same losses from a folder and from {', '.join(written)}")
    missing = [name for name, found in (("webdataset", webdataset), ("tfrecord", tfrecord)) if not found]
    if missing:
        print(f"not compared: {' and '.join(missing)} of PyPI are not installed (pip install {' '.join(missing)})")
    sys.exit(77 if missing else 0)


if __name__ == "__main__":
    main()
