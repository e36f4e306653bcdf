"""elastic.py's peer: a transformer of BERT-tiny's size under PyTorch's DistributedDataParallel over Gloo, started by torchrun, which
starts all workers again when one is lost. Rank 0 saves after each step; a worker begins from what was saved.

peer_elastic.py METRICS SNAPSHOT: appends a line with the step to METRICS.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, HIDDEN, LENGTH, SAMPLES = 512, 128, 32, 4


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        layer = torch.nn.TransformerEncoderLayer(HIDDEN, 2, 4 * HIDDEN, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.decoder = torch.nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        return self.decoder(self.layers(self.embedding(tokens)))


def main():
    metrics, snapshot = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while True:
        tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(step * 64 + dist.get_rank()))
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".part")
            os.replace(snapshot + ".part", snapshot)
            with open(metrics, "a") as file:
                file.write('{"step": %d}\n' % step)


if __name__ == "__main__":
    main()
