"""exchange.py PROGRAM: files that Python writes are read by dhp, and what dhp writes is read by Python.
Python reads and writes with struct and json, and with the package `safetensors` too where it is there."""

import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    safetensors = None

# Our name, the package's, bytes, and how struct calls it; bf16 are the upper halves of floats.
TYPES = {
    "F64": ("f64", "float64", 8, "d"),
    "F32": ("f32", "float32", 4, "f"),
    "F16": ("f16", "float16", 2, "e"),
    "BF16": ("bf16", "bfloat16", 2, None),
    "I64": ("i64", "int64", 8, "q"),
    "I32": ("i32", "int32", 4, "i"),
    "U8": ("u8", "uint8", 1, "B"),
}

# Each type, a scalar, no elements at all, and names that JSON has to escape.
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
    letter = TYPES[dtype][3]
    if letter is None:
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{letter}", *values)


def unpack(dtype, data):
    letter, size = TYPES[dtype][3], TYPES[dtype][2]
    if letter is None:
        return [struct.unpack("<f", b"\0\0" + data[at:at + 2])[0] for at in range(0, len(data), 2)]
    return list(struct.unpack(f"<{len(data) // size}{letter}", data))


def write_by_hand(path):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, values) in TENSORS.items():
        packed = pack(dtype, values)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_by_hand(path):
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


def write_by_package(path):
    tensors, alive = {}, []
    for name, (dtype, shape, values) in TENSORS.items():
        data = pack(dtype, values)
        if hasattr(safetensors, "TensorSpec"):  # newer ones take addresses
            alive.append(ctypes.create_string_buffer(data, len(data)))
            tensors[name] = safetensors.TensorSpec(
                dtype=TYPES[dtype][1], shape=shape, data_ptr=ctypes.addressof(alive[-1]),
                data_len=len(data))
        else:
            tensors[name] = {"dtype": TYPES[dtype][1], "shape": shape, "data": data}
    with open(path, "wb") as file:
        file.write(safetensors.serialize(tensors, {"format": "pt"}))


def read_by_package(path):
    with open(path, "rb") as file:
        found = safetensors.deserialize(file.read())
    return {name: (entry["dtype"], list(entry["shape"]),
                   unpack(entry["dtype"], bytes(entry["data"])))
            for name, entry in found}


def printed(text):
    ours = {entry[0]: dtype for dtype, entry in TYPES.items()}
    found = {}
    for line in text.splitlines():
        name, dtype, shape, values = line.split("\t")
        found[name] = (ours[dtype], [int(extent) for extent in shape.split()],
                       [float(value) for value in values.split()])
    return found


def stored():
    """The tensors as their types keep them."""
    return {name: (dtype, shape, unpack(dtype, pack(dtype, values)))
            for name, (dtype, shape, values) in TENSORS.items()}


def differences(found, who):
    expected = stored()
    wrong = [f"{who}: {name}: {found.get(name)} instead of {expected.get(name)}"
             for name in sorted(expected.keys() | found.keys())
             if found.get(name) != expected.get(name)]
    return wrong


def main():
    program, wrong = sys.argv[1], []
    ways = {"struct and json": (write_by_hand, read_by_hand)}
    if safetensors:
        ways[f"safetensors {safetensors.__version__}"] = (write_by_package, read_by_package)
    with tempfile.TemporaryDirectory() as folder:
        there, back = (os.path.join(folder, name) for name in ("there", "back"))
        for way, (write, read) in ways.items():
            write(there)
            text = subprocess.run([program, there, back], check=True, stdout=subprocess.PIPE,
                                  encoding="utf-8").stdout
            wrong += differences(printed(text), f"written by {way}, read by dhp")
            wrong += differences(read(back), f"written by dhp, read by {way}")
    print("\n".join(wrong) or f"{len(TENSORS)} tensors there and back: {', '.join(ways)}")
    sys.exit(1 if wrong else 0)


main()
