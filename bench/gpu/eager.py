"""Estimates what eager PyTorch launches in the same steps, from aten operations on meta tensors, which have no memory.

eager.py OUT.json [resnet50|bert|bert_dropout]...

Each operation that is no view counts as one launch. It reads its tensor arguments once and writes its results once; an
operation in place does both. Batch norms read their inputs twice, as in dhp's ledger. FLOP are those of products,
convolutions and attention. Precisions are those of torch.autocast("cuda"); attention is fused. It needs PyTorch 2 and
no GPU: python3 -m venv FOLDER && FOLDER/bin/pip install torch
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import peer_models  # noqa: E402

# Operations that are views, though their schema does not say so, or do no work on the GPU.
no_launch = {"aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided",
             "aten._unsafe_view", "aten._reshape_alias", "aten.detach", "aten.set_", "aten.resize_"}
passes = {"aten.native_batch_norm": 1, "aten.cudnn_batch_norm": 1, "aten.native_batch_norm_backward": 2,
          "aten.cudnn_batch_norm_backward": 2, "aten._native_batch_norm_legit": 1}  # arguments that are read twice


def tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def size(tensor):
    """Returns the bytes of a tensor in memory; a broadcast dimension counts once."""
    count = 1
    for extent, stride in zip(tensor.shape, tensor.stride()):
        count *= extent if stride != 0 else 1
    return count * tensor.element_size()


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.totals = {}

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        made = function(*arguments, **keywords)
        name = str(function).rsplit(".", 1)[0]
        if name in no_launch or function.is_view or not name.startswith(("aten.", "prims.")):
            return made
        read = tensors((arguments, keywords))
        if function._schema.is_mutable or name in ("aten.zeros", "aten.ones", "aten.full", "aten.scalar_tensor"):
            returned = [one for one in tensors(made) if not any(one is other for other in read)]
        else:
            returned = tensors(made)
        moved = sum(map(size, read)) + sum(map(size, returned))
        for argument, value in zip(function._schema.arguments, [*arguments, *[None] * 20]):
            if argument.alias_info is not None and argument.alias_info.is_write:
                fills = name in ("aten.zero_", "aten.fill_", "aten.copy_")
                moved += 0 if fills else sum(map(size, tensors(value)))
        moved += sum(map(size, read[:passes.get(name, 0)]))
        flop = 0
        if function.overloadpacket in flop_registry:
            flop = flop_registry[function.overloadpacket](*arguments, **keywords, out_val=made)
        self.add(name, moved, flop)
        return made

    def add(self, name, moved, flop, launches=1):
        total = self.totals.setdefault(name, {"name": name, "launches": 0, "bytes": 0, "flop": 0})
        total["launches"] += launches
        total["bytes"] += moved
        total["flop"] += flop


class Autocast(TorchFunctionMode):
    """Does what torch.autocast("cuda") does, for meta tensors, which lack it; casts a weight once a step."""
    narrow = {F.linear, F.conv2d, torch.conv2d, F.scaled_dot_product_attention}
    wide = {F.layer_norm, torch.layer_norm}

    def __init__(self, precision):
        super().__init__()
        self.precision, self.casts = precision, {}

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if function in self.narrow:
            arguments = [self.cast(value) for value in arguments]
        elif function in self.wide:
            arguments = [value.float() if isinstance(value, torch.Tensor) else value for value in arguments]
        if function is F.dropout:  # one kernel, as on GPUs
            share = keywords.get("p", arguments[1] if len(arguments) > 1 else 0)
            return torch.native_dropout(arguments[0], share, True)[0] if share > 0 else arguments[0]
        if function is F.scaled_dot_product_attention:
            attend = torch.ops.aten._scaled_dot_product_flash_attention
            return attend(*arguments, keywords["dropout_p"])[0]
        return function(*arguments, **keywords)

    def cast(self, value):
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if not value.is_leaf:
            return value.to(self.precision)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(self.precision)
        return self.casts[id(value)]


def resnet50():
    net = peer_models.ResNet50()
    images, labels = torch.randn(256, 3, 224, 224), torch.randint(1000, (256,))
    return net, 1, torch.float16, 256, lambda: F.cross_entropy(net(images), labels), 0


def bert(dropout=0.0):
    net = peer_models.Bert(30522, 24, 1024, 16, dropout)
    ids, segments = torch.randint(30522, (32, 512)), torch.zeros(32, 512, dtype=torch.long)
    rows, hidden = torch.zeros(32 * 77, dtype=torch.long), torch.zeros(32 * 77, dtype=torch.long)
    following = torch.randint(2, (32,))

    def loss():
        words, pairs = net(ids, segments, rows)
        return F.cross_entropy(words.float(), hidden) + F.cross_entropy(pairs.float(), following)

    return net, 2, torch.bfloat16, 32, loss, 1


def bert_dropout():
    return bert(0.1)


def counted(make):
    with torch.device("meta"):
        net, momenta, precision, samples, loss, clip = make()

        def step():
            with Autocast(precision):
                value = loss()
            scale = torch.ones(())
            (value * scale if precision == torch.float16 else value).backward()
            gradients = [parameter.grad for parameter in net.parameters()]
            if precision == torch.float16:
                torch._amp_foreach_non_finite_check_and_unscale_(gradients, torch.zeros(()), scale)

        with Counting() as counting:
            step()
        # Adds launches over many weights, which meta tensors lack. Norms read gradients, and clipping scales them. The
        # optimizer reads them and updates weights and momenta. All are fp32.
        weights = sum(parameter.numel() for parameter in net.parameters())
        if clip > 0:
            counting.add("aten._foreach_norm, aten._foreach_mul_", 3 * 4 * weights, 0, launches=2)
        counting.add("fused optimizer", 4 * weights * (1 + 2 * (1 + momenta)), 0)
    return {"samples": samples, "launches": sorted(counting.totals.values(), key=lambda total: -total["bytes"])}


def main():
    made = {"resnet50": resnet50, "bert": bert, "bert_dropout": bert_dropout}
    out = {"pytorch": torch.__version__, "steps": {name: counted(made[name]) for name in sys.argv[2:] or made}}
    with open(sys.argv[1], "w") as file:
        json.dump(out, file, indent=1)


main()
