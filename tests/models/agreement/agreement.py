"""Compares the example models with plain PyTorch on the same weights and inputs.

agreement.py DUMP: runs the program DUMP, reads what it wrote, does the same forward and backward pass in
PyTorch and compares logits, losses and every gradient. Exit status 77: PyTorch is not installed.
"""
import json
import math
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)

TYPES = {"F64": torch.float64, "F32": torch.float32, "I32": torch.int32, "I64": torch.int64}


def read(path):
    """The tensors of a safetensors file."""
    data = bytearray(open(path, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        raw = data[8 + size + first:8 + size + last]
        flat = torch.frombuffer(raw, dtype=TYPES[entry["dtype"]]) if raw else torch.zeros(0)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def part(tensors, prefix):
    return {name[len(prefix):]: value for name, value in tensors.items() if name.startswith(prefix)}


def resnet(w, tensors, groups, smoothing):
    def norm(x, name):
        return F.batch_norm(x, None, None, w[name + ".weight"], w[name + ".bias"], training=True, eps=1e-5)

    def conv(x, name, stride=1):
        kernel = w[name + ".weight"]
        return F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)

    x = tensors["input"].permute(0, 3, 1, 2)
    large = w["conv1.weight"].shape[-1] == 7
    x = F.relu(norm(conv(x, "conv1", 2 if large else 1), "bn1"))
    if large:
        x = F.max_pool2d(x, 3, 2, 1)
    for group, blocks in enumerate(groups):
        for block in range(blocks):
            name = "layer%d.%d." % (group + 1, block)
            stride = 2 if group > 0 and block == 0 else 1
            y = F.relu(norm(conv(x, name + "conv1"), name + "bn1"))
            y = F.relu(norm(conv(y, name + "conv2", stride), name + "bn2"))
            y = norm(conv(y, name + "conv3"), name + "bn3")
            if name + "downsample.0.weight" in w:
                x = norm(conv(x, name + "downsample.0", stride), name + "downsample.1")
            x = F.relu(x + y)
    logits = F.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])
    loss = F.cross_entropy(logits, tensors["side.labels"].long(), label_smoothing=smoothing)
    return {"output": logits}, [loss]


def bert(w, tensors, heads):
    side = {name: value.long() for name, value in part(tensors, "side.").items()}

    def dense(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps=1e-12)

    def rms_norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w[name + ".weight"]

    samples = len(side["lengths"])
    rows, embed = len(side["token_ids"]), "bert.embeddings."
    words = w[embed + "word_embeddings.weight"]
    x = (words[side["token_ids"]] + w[embed + "position_embeddings.weight"][side["positions"]]
         + w[embed + "token_type_embeddings.weight"][side["segments"]])
    x = norm(x, embed + "LayerNorm")
    length = rows // samples
    used = torch.arange(length)[None, :] < side["lengths"][:, None]  # [N, T]

    size = words.shape[1] // heads

    def heads_of(x):
        return x.reshape(samples, length, -1, size).transpose(1, 2)

    def rotated(x):
        angles = torch.arange(length)[:, None] * 100.0 ** (-torch.arange(0, size, 2).double() / size)
        a, b = x.chunk(2, -1)
        return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)

    layer = 0
    while "bert.encoder.layer.%d.output.dense.weight" % layer in w:
        name = "bert.encoder.layer.%d." % layer
        decoder = name + "attention.norm.weight" in w
        y = rms_norm(x, name + "attention.norm") if decoder else x
        q, k, v = (heads_of(dense(y, name + "attention.self." + which)) for which in ("query", "key", "value"))
        if decoder:
            q, k, v = rotated(q), rotated(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if decoder:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf)
        scores = scores.masked_fill(~used[:, None, None, :], -math.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, -1)
        mixed = mixed * used.reshape(rows, 1)  # padding gives 0
        layer += 1
        x = x + dense(mixed, name + "attention.output.dense")
        if decoder:
            y = rms_norm(x, name + "output.norm")
            y = F.silu(dense(y, name + "intermediate.dense.gate")) * dense(y, name + "intermediate.dense.up")
            x = x + dense(y, name + "output.dense")
            continue
        x = norm(x, name + "attention.output.LayerNorm")
        y = F.gelu(dense(x, name + "intermediate.dense"))
        x = norm(x + dense(y, name + "output.dense"), name + "output.LayerNorm")
    y = norm(F.gelu(dense(x[side["masked_rows"]], "cls.predictions.transform.dense")),
             "cls.predictions.transform.LayerNorm")
    masked = F.linear(y, words, w["cls.predictions.bias"])
    pooled = torch.tanh(dense(x[side["first_rows"]], "bert.pooler.dense"))
    following = dense(pooled, "cls.seq_relationship")
    logits = {"output": x, "masked": masked, "next": following}
    return logits, [F.cross_entropy(masked, side["masked_labels"]), F.cross_entropy(following, side["next_labels"])]


def gap(found, expected):
    """Largest difference relative to the largest value; absolute where the true value is zero."""
    largest = expected.abs().max().item() if expected.numel() else 0.0
    apart = (found - expected).abs().max().item() if expected.numel() else 0.0
    return apart if largest < 1e-9 else apart / largest


def compare(path, model):
    tensors = read(path)
    w = {key: value.requires_grad_() for key, value in part(tensors, "weight.").items()}
    logits, losses = model(w, tensors)
    sum(losses).backward()
    loss = torch.stack(losses).detach()
    found_logits, found = part(tensors, "logits."), part(tensors, "gradient.")
    assert set(found_logits) == set(logits), set(found_logits) ^ set(logits)
    assert set(found) == set(w), set(found) ^ set(w)
    gradients = {key: gap(found[key], w[key].grad) for key in found}
    key = max(gradients, key=gradients.get)
    worst = {"logits": max(gap(found_logits[key], logits[key].detach()) for key in logits),
             "loss": (tensors["losses"] - loss).abs().max().item() / loss.abs().max().item(),
             "gradient": gradients[key]}
    good = all(value <= 1e-9 for value in worst.values())
    print("%-15s %s  worst gradient %s  %s" % (
        path.split("/")[-1], "  ".join("%s %.1e" % pair for pair in worst.items()), key,
        "ok" if good else "TOO FAR"))
    return good


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True)
        models = {"resnet14": lambda w, t: resnet(w, t, (1, 1, 1, 1), 0.0),
                  "resnet50": lambda w, t: resnet(w, t, (3, 4, 6, 3), 0.0),
                  "resnet26_large": lambda w, t: resnet(w, t, (2, 2, 2, 2), 0.1),
                  "bert": lambda w, t: bert(w, t, 4),
                  "decoder": lambda w, t: bert(w, t, 4)}
        good = [compare(directory + "/" + name, model) for name, model in models.items()]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
