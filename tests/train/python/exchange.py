"""exchange.py PROGRAM: dhp reads files that Python writes, and Python reads files that dhp writes.
Here Python reads and writes with struct and json; gpt.py and export.py use the package safetensors."""

import json
import os
import struct
import subprocess
import sys
import tempfile

# dhp's name, bytes, and the letter in struct; a bf16 is the upper half of a float.
TYPES = {
    "F64": ("f64", 8, "d"),
    "F32": ("f32", 4, "f"),
    "F16": ("f16", 2, "e"),
    "BF16": ("bf16", 2, None),
    "I64": ("i64", 8, "q"),
    "I32": ("i32", 4, "i"),
    "U8": ("u8", 1, "B"),
}

# Every type, a scalar, a tensor without elements, and names that JSON has to escape.
TENSORS = {
    "layer.0.weight": ("F32", [2, 3], [1.5, -2.25, 0.0, 3e38, -1e-38, 0.1]),
    "layer.0.bias": ("F64", [3], [0.1, -1e300, 5e-324]),
    "half": ("F16", [4], [1.5, -0.25, 65504.0, 2.0 ** -24]),
    "brain": ("BF16", [1, 2, 2], [1.5, -3.0, 2.0 ** 100, 2.0 ** -100]),
    "steps": ("I64", [], [-(2 ** 53)]),
    "ids": ("I32", [2, 1], [2 ** 31 - 1, -(2 ** 31)]),
    "pixels": ("U8", [5], [0, 1, 127, 128, 255]),
    "nothing": ("F32", [0, 4], []),
    "gr\u00f6\u00dfe \"quoted\" \\ back": ("U8", [1], [7]),
}


def pack(dtype, values):
    letter = TYPES[dtype][2]
    if letter is None:
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{letter}", *values)


def unpack(dtype, data):
    letter, size = TYPES[dtype][2], TYPES[dtype][1]
    if letter is None:
        return [struct.unpack("<f", b"\0\0" + data[at:at + 2])[0] for at in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // size}{letter}", data))


def write(path):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, values) in TENSORS.items():
        packed = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    assert content[8:9] == b"{", "the header does not begin with {"
    assert length % 8 == 0, "the data are not aligned to 8 bytes"
    header, data, end = json.loads(content[8:8 + length]), content[8 + length:], 0
    header.pop("__metadata__", None)
    for first, last in sorted(entry["data_offsets"] for entry in header.values()):
        assert first == end, f"a gap or an overlap at byte {end}"
        end = last
    assert end == len(data), "bytes behind the last tensor"
    return {name: (entry["dtype"], entry["shape"],
                   unpack(entry["dtype"], data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


def printed(text):
    ours = {entry[0]: dtype for dtype, entry in TYPES.items()}
    found = {}
    for line in text.splitlines():
        name, dtype, shape, values = line.split("\t")
        found[name] = (ours[dtype], [int(extent) for extent in shape.split()],
                       [float(value) for value in values.split()])
    return found


def stored():
    """The tensors with values rounded to their types."""
    return {name: (dtype, shape, unpack(dtype, pack(dtype, values)))
            for name, (dtype, shape, values) in TENSORS.items()}


def differences(found, who):
    expected = stored()
    return [f"{who}: {name}: {found.get(name)} instead of {expected.get(name)}"
            for name in sorted(expected.keys() | found.keys()) if found.get(name) != expected.get(name)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        there, back = (os.path.join(folder, name) for name in ("there", "back"))
        write(there)
        text = subprocess.run([sys.argv[1], there, back], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
        wrong = differences(printed(text), "written by Python, read by dhp")
        wrong += differences(read(back), "written by dhp, read by Python")
    print("\n".join(wrong) or f"{len(TENSORS)} tensors there and back")
    sys.exit(1 if wrong else 0)


main()
