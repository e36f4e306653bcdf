#!/usr/bin/env python3
"""Compares training batches of images per CPU second: dhp's, a plain loop of libjpeg-turbo, PyTorch's DataLoader.

data.py BENCH_DATA PHOTOS [--rounds N] [--json FILE]

PHOTOS: a folder of photographs in any format that Pillow reads. Cuts and bicubic resizing turn them into JPEGs of two
sizes; dhp reads these from a folder, tar and TFRecord shards. Needs Pillow, for the peer PyTorch. Sources of one size
are timed in turns, each on one thread by CPU time. Prints medians. PyTorch's DataLoader runs in its own process without
workers, with the transforms of torchvision's reference training written with Pillow and numpy: a random resized crop
(bilinear), a flip, normalized.
"""

import argparse
import io
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

import results_file

SIZES = {"500 x 375": (500, 375), "2048 x 1536": (2048, 1536)}
IMAGES = 48


def cuts(photos, size):
    """Writes JPEGs, random cuts of the photographs in the right aspect ratio."""
    from PIL import Image

    chance = random.Random(1)
    width, height = size
    sources = [Image.open(path).convert("RGB") for path in sorted(pathlib.Path(photos).rglob("*")) if path.suffix in (".png", ".jpg", ".jpeg")]
    sources = [image for image in sources if min(image.size) >= 300]
    for number in range(IMAGES):
        image = sources[number % len(sources)]
        part = min(image.width / width, image.height / height) * chance.uniform(0.7, 1)
        w, h = part * width, part * height
        left, top = chance.uniform(0, image.width - w), chance.uniform(0, image.height - h)
        file = io.BytesIO()
        image.resize(size, Image.BICUBIC, (left, top, left + w, top + h)).save(file, "JPEG", quality=90)
        yield file.getvalue()


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


def record(data, table=crc_table()):
    def checksum(part):
        state = 0xFFFFFFFF
        for byte in part:
            state = state >> 8 ^ table[(state ^ byte) & 255]
        state ^= 0xFFFFFFFF
        return struct.pack("<I", ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def field(number, data):
    length, size = b"", len(data)
    while size >= 128:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def example(image, label):
    entries = ((b"image/encoded", field(1, field(1, image))), (b"image/class/label", field(3, field(1, bytes([label])))))
    return field(1, b"".join(field(1, field(1, name) + field(2, feature)) for name, feature in entries))


def write(root, images):
    (root / "tar").mkdir(parents=True)
    (root / "tfrecord").mkdir()
    with tarfile.open(root / "tar" / "000000.tar", "w") as tar, open(root / "tfrecord" / "train.tfrecord", "wb") as records:
        for number, image in enumerate(images):
            (root / "folder" / str(number % 2)).mkdir(parents=True, exist_ok=True)
            (root / "folder" / str(number % 2) / f"{number:04}.jpg").write_bytes(image)
            records.write(record(example(image, number % 2)))
            for name, data in ((f"{number:06}.jpg", image), (f"{number:06}.cls", str(number % 2).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def by_torch(folder, seconds):
    """Returns images per CPU second of this process, by PyTorch's DataLoader."""
    import math

    import numpy
    import torch
    from PIL import Image

    torch.set_num_threads(1)
    mean, deviation = (numpy.array(v, numpy.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    class Photos(torch.utils.data.Dataset):
        files = sorted(pathlib.Path(folder).rglob("*.jpg"))

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            image = Image.open(self.files[index]).convert("RGB")
            while True:
                area = image.width * image.height * random.uniform(0.08, 1)
                ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
                w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
                if w <= image.width and h <= image.height:
                    break
            left, top = random.randint(0, image.width - w), random.randint(0, image.height - h)
            image = image.crop((left, top, left + w, top + h)).resize((224, 224), Image.BILINEAR)
            if random.random() < 0.5:
                image = image.transpose(Image.FLIP_LEFT_RIGHT)
            pixels = (numpy.asarray(image, numpy.float32) / 255 - mean) / deviation
            return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), index % 2

    done, first = 0, time.process_time()
    while time.process_time() - first < seconds:
        for batch, _ in torch.utils.data.DataLoader(Photos(), batch_size=8, shuffle=True):
            done += len(batch)
    return done / (time.process_time() - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--torch", action="store_true", help="only PyTorch, with PHOTOS as they are")
    options = parser.parse_args()
    if options.torch:
        print(by_torch(options.photos, 2))
        return
    results = {}
    for name, size in SIZES.items():
        with tempfile.TemporaryDirectory() as temporary:
            root = pathlib.Path(temporary)
            write(root, cuts(options.photos, size))
            found = {}
            for _ in range(options.rounds):
                said = subprocess.run([options.program, root / "folder", root / "tar", root / "tfrecord", "8"],
                                      check=True, capture_output=True, text=True).stdout
                for line in said.splitlines():
                    what, value = line.split("\t")
                    found.setdefault(what, []).append(float(value))
                peer = subprocess.run([sys.executable, __file__, options.program, root / "folder", "--torch"],
                                      capture_output=True, text=True)
                if peer.returncode == 0:
                    found.setdefault("PyTorch's DataLoader", []).append(float(peer.stdout))
            results[name] = {what: statistics.median(values) for what, values in found.items()}
            print(f"JPEGs of {name}, images per second and core; in brackets beside the plain loop")
            plain = results[name]["plain libjpeg-turbo"]
            for what, value in results[name].items():
                beside = "" if what.startswith("mean") else f"   ({value / plain:.2f})"
                print(f"  {what:32} {value:8.4g}{beside}")
            if "PyTorch's DataLoader" not in results[name]:
                print("  PyTorch and Pillow were not both found:", peer.stderr.strip().splitlines()[-1])
    if options.json:
        results_file.save(options.json, results)


if __name__ == "__main__":
    main()
