"""Tensors of dhp to and from NumPy and PyTorch by DLPack, without a copy: dlpack.py LIBRARY (of dlpack_bridge.cpp)."""
import ctypes
import gc
import inspect
import sys

try:
    import numpy
except ImportError:
    print("skipped: this Python has no numpy")
    sys.exit(77)
try:
    import torch
    import torch.utils.dlpack
except ImportError:
    torch = None

bridge = ctypes.CDLL(sys.argv[1])
for name in ("bridge_old", "bridge_versioned", "bridge_take_old", "bridge_take_versioned", "bridge_address"):
    getattr(bridge, name).restype = ctypes.c_void_p
bridge.bridge_text.restype = ctypes.c_char_p
python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
types = ["f64", "f32", "bf16", "f16", "i64", "i32", "u8"]  # as dhp::DType counts them
names = {True: b"dltensor_versioned", False: b"dltensor"}
used = {True: b"used_dltensor_versioned", False: b"used_dltensor"}
numpy_speaks_version = tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)
failed = 0


def check(right, *what):
    global failed
    if not right:
        failed = 1
        print("wrong:", *what)


class OfDhp:
    """A tensor of dhp with the methods that Python's libraries call."""

    def __init__(self, type, versioned, shared=0):
        make = bridge.bridge_versioned if versioned else bridge.bridge_old
        self.managed, self.versioned = make(types.index(type), shared), versioned

    def __dlpack__(self, stream=None, **_):
        return python.PyCapsule_New(self.managed, names[self.versioned], None)

    def __dlpack_device__(self):
        return 1, 0


def taken(capsule, versioned=False):
    """Returns a tensor of dhp over a capsule's elements, and the error message if dhp refuses the capsule."""
    said = ctypes.create_string_buffer(500)
    take = bridge.bridge_take_versioned if versioned else bridge.bridge_take_old
    tensor = take(ctypes.c_void_p(python.PyCapsule_GetPointer(capsule, names[versioned])), said, 500)
    if tensor:
        python.PyCapsule_SetName(capsule, used[versioned])  # its elements are dhp's now
    return tensor and ctypes.c_void_p(tensor), said.value.decode()


def out(library, type, take, versioned):
    """From dhp: numbers are equal, writes are visible on both sides, and the last owner frees the elements."""
    array = take(OfDhp(type, versioned))
    what = (library, type, versioned)
    check(array.shape == (2, 3) and [float(x) for x in array.reshape(-1)] == [0, 1, 2, 3, 4, 5], *what, array)
    check(bridge.bridge_owners() == 1, *what, "has no owner")
    del array
    gc.collect()
    check(bridge.bridge_owners() == 0, *what, "is not freed")


def into(library, type, array, address, capsule, writable, versioned=False):
    """To dhp: address and type are the same, zeros that dhp writes are visible, and dhp releases the array."""
    before = sys.getrefcount(array)
    tensor, said = taken(capsule(array), versioned)
    what = (library, type, versioned)
    if not tensor:
        return check(False, *what, said)
    check(bridge.bridge_address(tensor) == address(array), *what, "was copied")
    check(bridge.bridge_text(tensor).decode() == "%s [2, 3]" % type, *what, bridge.bridge_text(tensor))
    check(bridge.bridge_clear(tensor) == writable, *what, "writable:", not writable)
    check((float(array.sum()) == 0) == bool(writable), *what, array)
    bridge.bridge_drop(tensor)
    check(sys.getrefcount(array) == before, *what, "is not released")


def refused(capsule, part, versioned=False):
    tensor, said = taken(capsule, versioned)
    check(not tensor and part in said, "not refused:", part, said)


numpy_types = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "u8": "uint8"}
address_of = lambda array: array.__array_interface__["data"][0]
for type, name in numpy_types.items():
    for versioned in [False] + [True] * numpy_speaks_version:
        out("numpy", type, numpy.from_dlpack, versioned)
        options = {"max_version": (1, 0)} if versioned else {}
        into("numpy", type, numpy.arange(6).astype(name).reshape(2, 3), address_of,
             lambda array: array.__dlpack__(**options), 1, versioned)
if numpy_speaks_version:
    writes = numpy.from_dlpack(numpy.ones(1)).flags.writeable  # NumPy 2.2 reads only, even its own arrays
    for shared in (0, 1):
        found = numpy.from_dlpack(OfDhp("f32", True, shared)).flags.writeable
        check(found == (writes and not shared), "writable, shared", shared)
    fixed = numpy.ones((2, 3), "float32")
    fixed.flags.writeable = False
    into("numpy, read-only", "f32", fixed, address_of, lambda array: array.__dlpack__(max_version=(1, 0)), 0, True)
grid = numpy.ones((4, 3))
refused(grid.T.__dlpack__(), "dim 1 of a tensor [3, 4] has stride 3, and 1 in row-major order")
refused(grid[:, 1:].__dlpack__(), "has stride 3, and 2 in row-major order")
refused(grid[::-1].__dlpack__(), "has stride -3")
refused(numpy.ones(3, "uint16").__dlpack__(), "dhp has no elements of uint16")
refused(numpy.ones(3, "complex64").__dlpack__(), "dhp has no elements of complex64")
refused(numpy.ones((1,) * 7).__dlpack__(), "a tensor of 7 dims")
tensor, said = taken(numpy.full((), 7.0).__dlpack__())
check(tensor and bridge.bridge_text(tensor) == b"f64 []", "a scalar", said)
tensor, said = taken(grid[1:3].__dlpack__())
check(tensor and bridge.bridge_address(tensor) == address_of(grid[1:3]), "some rows", said)

if torch:
    torch_types = {**numpy_types, "bf16": "bfloat16"}
    asked = lambda x: x.__dlpack__(max_version=(1, 0))
    takes_version = "max_version" in inspect.signature(torch.ones(1).__dlpack__).parameters
    torch_speaks_version = takes_version and "versioned" in repr(asked(torch.ones(1)))
    for type, name in torch_types.items():
        for versioned in [False] + [True] * torch_speaks_version:
            out("torch", type, torch.from_dlpack, versioned)
            into("torch", type, torch.arange(6).to(getattr(torch, name)).reshape(2, 3), torch.Tensor.data_ptr,
                 asked if versioned else torch.utils.dlpack.to_dlpack, 1, versioned)
    refused(torch.utils.dlpack.to_dlpack(torch.ones(3, dtype=torch.int8)), "dhp has no elements of int8")
    refused(torch.utils.dlpack.to_dlpack(torch.ones(4, 3).t()), "has stride 3, and 1 in row-major order")
    tensor, said = taken(torch.utils.dlpack.to_dlpack(torch.ones(4, 3)[2:]))
    check(tensor and bridge.bridge_text(tensor) == b"f32 [2, 3]", "some rows of torch's", said)
of_torch = ", torch %s%s" % (torch.__version__, "" if torch_speaks_version else " (old structs)") if torch else ""
print("numpy %s%s%s" % (numpy.__version__, "" if numpy_speaks_version else " (old structs)", of_torch))
sys.exit(failed)
