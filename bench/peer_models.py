"""The example models in plain PyTorch, as users write them today; peer of training_step.py."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, channels, inner, stride):
        super().__init__()
        out = 4 * inner
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


class ResNet50(nn.Module):
    def __init__(self, width=64, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks, channels = [], width
        for group, count in enumerate((3, 4, 6, 3)):
            inner = width << group
            for block in range(count):
                blocks.append(Bottleneck(channels, inner, 2 if group > 0 and block == 0 else 1))
                channels = 4 * inner
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


class Block(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(hidden, 1e-12), nn.LayerNorm(hidden, 1e-12)

    def attention(self, q, k, v, used):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=used, dropout_p=self.dropout)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if used is not None:
            scores = scores.masked_fill(~used, -math.inf)
        return F.dropout(scores.softmax(-1), self.dropout) @ v

    def forward(self, x, used=None):
        samples, length, hidden = x.shape
        split = self.qkv(x).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.attention(*split, used).transpose(1, 2).reshape(samples, length, hidden)
        x = self.norm1(x + F.dropout(self.out(y), self.dropout))
        y = self.narrow(F.gelu(self.wide(x)))
        return self.norm2(x + F.dropout(y, self.dropout))


class Bert(nn.Module):
    def __init__(self, vocabulary, layers=4, hidden=256, heads=4, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions, self.segments = nn.Embedding(512, hidden), nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, 1e-12)
        self.blocks = nn.ModuleList(Block(hidden, heads, dropout) for _ in range(layers))
        self.pooler, self.following = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)
        self.transform, self.transform_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, 1e-12)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for table in (self.words, self.positions, self.segments):
            nn.init.normal_(table.weight, 0, 0.02)

    def forward(self, ids, segments, masked_rows, used=None):
        """used: marks the tokens that are no padding, [samples, 1, 1, length]; by default all."""
        x = self.words(ids) + self.positions.weight[:ids.shape[1]] + self.segments(segments)
        x = F.dropout(self.norm(x), self.dropout)
        for block in self.blocks:
            x = block(x, used)
        y = self.transform_norm(F.gelu(self.transform(x.flatten(0, 1)[masked_rows])))
        return F.linear(y, self.words.weight, self.bias), self.following(torch.tanh(self.pooler(x[:, 0])))

    def load(self, weights):
        """Takes weights that dhp has exported, by Hugging Face's names."""
        names = {"words": "bert.embeddings.word_embeddings", "positions": "bert.embeddings.position_embeddings",
                 "segments": "bert.embeddings.token_type_embeddings", "norm": "bert.embeddings.LayerNorm",
                 "pooler": "bert.pooler.dense", "following": "cls.seq_relationship",
                 "transform": "cls.predictions.transform.dense",
                 "transform_norm": "cls.predictions.transform.LayerNorm"}
        for at in range(len(self.blocks)):
            ours, theirs = "blocks.%d." % at, "bert.encoder.layer.%d." % at
            names.update({ours + "out": theirs + "attention.output.dense", ours + "wide": theirs + "intermediate.dense",
                          ours + "norm1": theirs + "attention.output.LayerNorm", ours + "narrow": theirs + "output.dense",
                          ours + "norm2": theirs + "output.LayerNorm"})
        state = {"bias": weights["cls.predictions.bias"]}
        for name in self.state_dict():
            module, _, kind = name.rpartition(".")
            if module in names:
                state[name] = weights[names[module] + "." + kind]
            elif module.endswith(".qkv"):
                of = "bert.encoder.layer.%s.attention.self.%%s.%s" % (module.split(".")[1], kind)
                state[name] = torch.cat([weights[of % which] for which in ("query", "key", "value")])
        self.load_state_dict(state)


def fastest_optimizer(kind, parameters, **options):
    """Returns the optimizer, fused if this PyTorch can fuse it on the CPU."""
    probe = torch.zeros(1, requires_grad=True)
    probe.grad = torch.zeros(1)
    try:
        kind([probe], fused=True, **options).step()
    except (TypeError, RuntimeError):
        return kind(parameters, **options)
    return kind(parameters, fused=True, **options)


def autocast(type):
    """Lets operations that gain by it run in a 16-bit type."""
    return torch.autocast("cpu", dtype=type, enabled=type != torch.float32)


def resnet50_step(channels_last, type=torch.float32, samples=8, size=96):
    """Returns a function that does one training step and returns the loss."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    net = ResNet50().to(memory_format=layout)
    optimizer = fastest_optimizer(torch.optim.SGD, list(net.parameters()), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(samples, 3, size, size).to(memory_format=layout)
    labels = torch.arange(samples)

    def step():
        optimizer.zero_grad()
        with autocast(type):
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def bert_mini_step(type=torch.float32, samples=16, length=128, vocabulary=8192):
    net = Bert(vocabulary)
    optimizer = fastest_optimizer(torch.optim.AdamW, list(net.parameters()), lr=1e-3)
    ids = torch.randint(vocabulary, (samples, length))
    segments = (torch.arange(length) >= length // 2).long().expand(samples, length)
    rows = torch.tensor([row for row in range(samples * length) if row % length % 7 == 3])
    hidden, following = ids.flatten()[rows], torch.arange(samples) % 2

    def step():
        optimizer.zero_grad()
        with autocast(type):
            words, pairs = net(ids, segments, rows)
            loss = F.cross_entropy(words, hidden) + F.cross_entropy(pairs, following)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
