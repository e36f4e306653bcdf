"""The peers: the models of ../peer_models.py trained on a GPU as their users do it today.

Each function returns a function that trains `steps` steps and waits for them. They use mixed precision by autocast over
fp32 weights, channels_last images, scaled_dot_product_attention and fused optimizers. Nothing waits for the GPU between
steps, and only masked positions reach the vocabulary's product. compile: torch.compile(mode="max-autotune").
"""
import os
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import peer_models  # noqa: E402

types = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
presets = {"tiny": (2, 128, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}


def trainer(device, net, optimizer, precision, losses, clip):
    """Returns a trainer; losses(net) computes the loss of one step."""
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    parameters = list(net.parameters())

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, types[precision], enabled=precision != "fp32"):
                loss = losses(net)
            scaler.scale(loss).backward()
            if clip > 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(parameters, clip)
            scaler.step(optimizer)
            scaler.update()
        if device == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    return train


def prepared(net, compiled):
    return torch.compile(net, mode="max-autotune") if compiled else net


def resnet(device, precision, batch, image_size=224, width=64, compiled=False):
    torch.backends.cudnn.benchmark = True
    net = peer_models.ResNet50(width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=device == "cuda")
    images = torch.randn(batch, 3, image_size, image_size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)
    return trainer(device, prepared(net, compiled), optimizer, precision,
                   lambda net: F.cross_entropy(net(images), labels), clip=0)


def bert(device, precision, batch, preset, length, vocabulary, masked, dropout=0.1, compiled=False):
    """Returns a trainer; masked: number of tokens of each sample to predict."""
    layers, hidden, heads = presets[preset]
    net = peer_models.Bert(vocabulary, layers, hidden, heads, dropout).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.01, fused=device == "cuda")
    ids = torch.randint(vocabulary, (batch, length), device=device)
    segments = (torch.arange(length, device=device) >= length // 2).long().expand(batch, length)
    rows = (torch.arange(batch, device=device)[:, None] * length +
            torch.arange(masked, device=device)[None] * length // masked).flatten()
    hidden_ids, following = ids.flatten()[rows], torch.randint(2, (batch,), device=device)

    def losses(net):
        words, pairs = net(ids, segments, rows)
        return F.cross_entropy(words.float(), hidden_ids) + F.cross_entropy(pairs.float(), following)

    return trainer(device, prepared(net, compiled), optimizer, precision, losses, clip=1)
