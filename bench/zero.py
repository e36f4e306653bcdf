"""Compares ZeRO in dhp and in PyTorch: the same BERT, weights and batches, on processes over Gloo.

zero.py TRAIN_BERT BENCH_ZERO [--replicas N ...] [--preset NAME] [--steps N] [--precision NAME] [--json FILE]: trains by
train_bert --zero 0 to 3, and in PyTorch by DistributedDataParallel, by that with ZeroRedundancyOptimizer, and by
fully_shard (FSDP 2), with AdamW everywhere. The table has one row for each:

  apart       largest relative difference of a step's loss from dhp's without ZeRO
  weights, gradients, state   MiB of tensors that a rank holds after a step; gradients counted before they are zeroed
  peak        MiB, peak resident memory of a rank (VmHWM) minus that of its process before the model exists

Exits with status 1 if a curve differs by more than rounding, 77 if this Python has no PyTorch with fully_shard.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import results_file
from processes import as_processes, limit_s

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "tests" / "models" / "agreement"))
samples, length, rate = 8, 32, 1e-3
# The effect of rounding, which steps amplify: Adam divides small gradients by their own size.
most_apart = {"fp32": 1e-4, "fp64": 1e-12}
peers = {"ddp": "DDP, AdamW", "zero": "DDP, ZeroRedundancyOptimizer", "fsdp": "fully_shard, AdamW"}


def resident(what):
    """Returns bytes of this process: VmRSS, resident now, or VmHWM, the peak so far."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(what + ":"))


def peer(of):
    """Runs one rank of PyTorch; prints its results as JSON."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from agreement import part, read
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    import peer_models

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    small = torch.nn.Linear(8, 8)  # libraries load more at their first use
    small(torch.zeros(8, 8)).sum().backward()
    torch.optim.AdamW(small.parameters()).step()
    before = resident("VmRSS")
    if of["precision"] == "fp64":
        torch.set_default_dtype(torch.float64)
    shape = of["model"]
    model = peer_models.Bert(shape["vocab_size"], shape["num_hidden_layers"], shape["hidden_size"],
                             shape["num_attention_heads"], dropout=0)
    model.load(read(of["weights"]))
    if of["way"] == "fsdp":
        mesh = dist.init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        net = fully_shard(model, mesh=mesh)
    else:
        net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    parameters = list(net.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    if of["way"] == "zero":
        optimizer = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=rate)
    else:
        optimizer = torch.optim.AdamW(groups, lr=rate)
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # resets VmHWM, since loading has held the weights twice

    def held(tensors):
        """Returns the bytes of this rank's storage."""
        storages = [(t.to_local() if hasattr(t, "to_local") else t).untyped_storage() for t in tensors]
        return sum({s.data_ptr(): s.nbytes() for s in storages}.values())

    batches = read(of["batches"])
    losses = []
    for step in range(of["steps"]):
        optimizer.zero_grad()
        all_ranks = [part(batches, "%d.%d." % (step, at)) for at in range(ranks)]
        mine = {name: value.long() for name, value in all_ranks[rank].items()}
        words, pairs = net(mine["token_ids"].view(-1, length), mine["segments"].view(-1, length), mine["masked_rows"],
                           (torch.arange(length) < mine["lengths"][:, None])[:, None, None, :])
        # The mean over the samples of all ranks; PyTorch divides gradients by the number of ranks.
        loss = (F.cross_entropy(words, mine["masked_labels"], reduction="sum")
                / sum(len(batch["masked_rows"]) for batch in all_ranks)
                + F.cross_entropy(pairs, mine["next_labels"], reduction="sum") / samples)
        (loss * ranks).backward()
        optimizer.step()
        loss = loss.detach().double()
        dist.all_reduce(loss)
        losses.append(loss.item())
    states = (optimizer.optim if of["way"] == "zero" else optimizer).state.values()
    found = {"losses": losses, "weights": held(parameters), "gradients": held([p.grad for p in parameters]),
             "state": held([t for state in states for t in state.values() if t.dim() > 0]), "before": before,
             "peak": resident("VmHWM")}
    dist.destroy_process_group()
    print(json.dumps(found))


def run_dhp(trainer, options, ranks, stage, before, held, folder):
    metrics = folder + "/metrics"
    done = as_processes(ranks, [trainer, *options, "--zero", str(stage), "--metrics", metrics])
    with open(metrics) as lines:
        losses = [step["loss"] for step in map(json.loads, lines) if "loss" in step]
    os.remove(metrics)
    return {"way": "dhp --zero %d" % stage, "losses": losses, **held[stage], "before": before,
            "peak": max(most for _, most in done)}


def run_peer(way, setup, ranks):
    done = as_processes(ranks, [sys.executable, __file__, "--peer", json.dumps({**setup, "way": way})])
    found = [json.loads(said.splitlines()[-1]) for said, _ in done]
    most = {name: max(of[name] for of in found) for name in ("weights", "gradients", "state", "before", "peak")}
    return {"way": peers[way], "losses": found[0]["losses"], **most}


def compare(ranks, arguments, version, folder):
    options = ["--preset", arguments.preset, "--sequence-length", str(length), "--dropout", "0", "--layout", "padded",
               "--precision", arguments.precision, "--global-batch", str(samples), "--micro-batch", str(samples // ranks),
               "--held-out", "0", "--clip", "0", "--lr-decay", "constant", "--data-parallel", str(ranks)]
    training = options + ["--lr", str(rate), "--steps", str(arguments.steps)]
    quiet = dict(check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit_s)
    # A learning rate of 0 keeps the weights of the start.
    subprocess.run([arguments.trainer, *options, "--lr", "0", "--steps", "1", "--save", folder + "/saved", "--export",
                    folder + "/weights", "--overwrite"], **quiet)
    shutil.rmtree(folder + "/saved")
    looked = subprocess.run([arguments.look, folder + "/batches", *training], **quiet).stdout
    held = [dict(zip(("weights", "gradients", "state"), map(int, line.split()[1:]))) for line in looked.splitlines()]
    with open(folder + "/weights/config.json") as file:
        model = json.load(file)
    setup = {"weights": folder + "/weights/model.safetensors", "batches": folder + "/batches", "model": model,
             "steps": arguments.steps, "precision": arguments.precision}
    before = as_processes(1, [arguments.trainer, "--version"])[0][1]

    rows = [run_dhp(arguments.trainer, training, ranks, stage, before, held, folder) for stage in range(4)]
    rows += [run_peer(way, setup, ranks) for way in peers]
    print("\nBERT-%s, %d layers of %d, %s, %d steps of %d samples of %d tokens, %d replicas; PyTorch %s; loss %.3f to %.3f" % (
        arguments.preset, model["num_hidden_layers"], model["hidden_size"], arguments.precision, arguments.steps, samples,
        length, ranks, version, rows[0]["losses"][0], rows[0]["losses"][-1]))
    print("%-30s %9s %9s %9s %9s %9s" % ("", "apart", "weights", "gradients", "state", "peak"))
    for row in rows:
        assert len(row["losses"]) == arguments.steps, row
        row["apart"] = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], rows[0]["losses"]))
        print("%-30s %9.1e %9.1f %9.1f %9.1f %9.1f" % (
            row["way"], row["apart"], *(row[name] / 2**20 for name in ("weights", "gradients", "state")),
            (row["peak"] - row["before"]) / 2**20), flush=True)
    return {"peer": "PyTorch " + version, "replicas": ranks, "preset": arguments.preset, "type": arguments.precision,
            "steps": arguments.steps, "samples": samples, "tokens": length, "rows": rows}


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", help="train_bert")
    parser.add_argument("look", help="bench_zero")
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--precision", choices=sorted(most_apart), default="fp32")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    # torch is not imported here, since this process's resident memory counts in its children too.
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = "0.0"
    if tuple(map(int, version.split(".")[:2])) < (2, 6):
        print("skipped: this Python has no PyTorch with fully_shard (from 2.6 on)")
        return 77
    tables = []
    for ranks in arguments.replicas:
        with tempfile.TemporaryDirectory() as folder:
            tables.append(compare(ranks, arguments, version, folder))
    if arguments.json:
        results_file.save(arguments.json, tables)
    apart = max(row["apart"] for table in tables for row in table["rows"])
    if not apart <= most_apart[arguments.precision]:
        print("TOO FAR: %.1e" % apart)
        return 1
    return 0


sys.exit(main())
