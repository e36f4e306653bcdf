"""elastic.py's peers: a transformer of BERT-tiny's size in PyTorch, data parallel over Gloo in local processes.

peer_elastic.py METRICS SNAPSHOT EVERY: a worker of torchrun, which starts all workers again when one is lost, under
DistributedDataParallel. Rank 0 saves every EVERY steps; a worker starts from the last save.
peer_elastic.py METRICS LIGHTHOUSE: replica RANK of torchft's four, which continue if one is lost.

Both append a line with step, loss and replicas to METRICS.
"""
import datetime
import json
import os
import sys

import torch
import torch.distributed as dist

VOCABULARY, HIDDEN, LENGTH, SAMPLES = 512, 128, 32, 4


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        layer = torch.nn.TransformerEncoderLayer(HIDDEN, 2, 4 * HIDDEN, dropout=0, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.decoder = torch.nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        return self.decoder(self.layers(self.embedding(tokens)))


def losses_of(model, step, rank):
    tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(step * 64 + rank))
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def tell(metrics, step, loss, replicas):
    with open(metrics, "a") as file:
        file.write(json.dumps(dict(step=step, loss=loss, replicas=replicas)) + "\n")


def by_torchrun(metrics, snapshot, every):
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while True:
        loss = losses_of(model, step, dist.get_rank())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        mean = loss.detach().double()
        dist.all_reduce(mean)
        if dist.get_rank() > 0:
            continue
        if step % every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".part")
            os.replace(snapshot + ".part", snapshot)
        tell(metrics, step, mean.item() / dist.get_world_size(), dist.get_world_size())


def by_torchft(metrics, lighthouse):
    import torchft
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    model, limit = Model(), datetime.timedelta(seconds=30)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=limit), min_replica_size=1, load_state_dict=load, timeout=limit, quorum_timeout=limit,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, rank=0, world_size=1,
        replica_id="replica_" + os.environ["RANK"], store_addr="localhost", store_port=store.port, lighthouse_addr=lighthouse,
        hostname="localhost")
    updates = torchft.Optimizer(manager, optimizer)
    while True:
        before = manager.current_step()
        updates.zero_grad()
        loss = losses_of(model, before, int(os.environ["RANK"]))
        loss.backward()
        # torchft's DistributedDataParallel (0.2.0, PyTorch 2.15) fails an assertion in a step that loses a replica.
        gradients = [parameter.grad for parameter in model.parameters()]
        whole = torch._utils._flatten_dense_tensors(gradients)
        manager.allreduce(whole).wait()
        for gradient, mean in zip(gradients, torch._utils._unflatten_dense_tensors(whole, gradients)):
            gradient.copy_(mean)
        updates.step()
        if manager.current_step() > before and os.environ["RANK"] == "0":
            tell(metrics, manager.current_step(), loss.item(), manager.num_participants())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if len(sys.argv) == 4:
        by_torchrun(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        by_torchft(*sys.argv[1:])


if __name__ == "__main__":
    main()
