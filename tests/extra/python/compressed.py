#!/usr/bin/env python3
"""compressed.py DUMP_COMPRESSED: compares dhp's PowerSgd with PyTorch's powerSGD_hook, on the same gradients and the
same first Q, in two processes over Gloo."""

import json
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
except ImportError as error:
    print(f"skipped: {error} (in Debian python3-torch)")
    sys.exit(77)

PARAMETERS, MATRICES = (0, 1, 2, 5), (0, 2, 5)


class Bucket:
    """The part of GradBucket's interface that the hook uses."""

    def __init__(self, gradients):
        self.flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        pieces = self.flat.split([gradient.numel() for gradient in gradients])
        self.views = [piece.view(gradient.shape) for piece, gradient in zip(pieces, gradients)]

    def buffer(self):
        return self.flat

    def gradients(self):
        return self.views

    def index(self):
        return 0

    def is_last(self):
        return True


def gradients_of(dump, replica, step):
    return [torch.tensor(dump[f"gradient {replica} {step} {parameter}"]).view([int(n) for n in dump[f"shape {parameter}"]])
            for parameter in PARAMETERS]


def replica(rank, dump, place, rank_of_matrices, results):
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=dump["replicas"])
    state = PowerSGDState(None, matrix_approximation_rank=rank_of_matrices, start_powerSGD_iter=2,
                          min_compression_rate=1)
    state.iter = 2  # past the steps that the hook leaves uncompressed
    lengths = {}
    for parameter in MATRICES:
        rows, *others = (int(n) for n in dump[f"shape {parameter}"])
        lengths[parameter] = rows, int(torch.tensor(others).prod())
    # The hook draws Q only if there is none.
    state.p_memory_dict[0] = torch.empty(sum(rows for rows, _ in lengths.values()) * rank_of_matrices)
    state.q_memory_dict[0] = torch.cat([torch.tensor(dump[f"normal {parameter}"][:columns * rank_of_matrices])
                                        for parameter, (_, columns) in lengths.items()])
    state.error_dict[0] = torch.zeros(sum(gradient.numel() for gradient in gradients_of(dump, rank, 0)))
    found = {}
    for step in range(dump["steps"]):
        bucket = Bucket(gradients_of(dump, rank, step))
        powerSGD_hook(state, bucket).wait()
        for parameter, mean in zip(PARAMETERS, bucket.gradients()):
            found[f"sum {step} {parameter}"] = (mean * dump["replicas"]).reshape(-1)
    pieces = state.error_dict[0].split([gradient.numel() for gradient in bucket.gradients()])
    for parameter, piece in zip(PARAMETERS, pieces):
        if parameter in MATRICES:
            found[f"unsent {rank} {parameter}"] = piece
    results.put((rank, {name: value.tolist() for name, value in found.items()}))
    dist.barrier()


def power_sgd(dump, rank_of_matrices):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=replica, args=(rank, dump, f"{folder}/store", rank_of_matrices, results))
                     for rank in range(dump["replicas"])]
        for process in processes:
            process.start()
        found = {}
        for _ in processes:
            found.update(results.get(timeout=600)[1])
        for process in processes:
            process.join()
    return found


def largest_difference(ours, theirs):
    """Returns the largest difference of the sums and memories of all steps, relative to each tensor's largest value."""
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    worst = 0
    for name, values in ours.items():
        right = torch.tensor(theirs[name])
        worst = max(worst, float((torch.tensor(values) - right).abs().max() / right.abs().max()))
    return worst


def main():
    dump = json.loads(subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout)
    bad = 0
    for rank in (1, 3):
        name = f"powersgd {rank}"
        worst = largest_difference(dump[name], power_sgd(dump, rank))
        print(f"{name}: {dump['steps']} steps of {dump['replicas']} replicas, largest relative difference from PyTorch "
              f"{torch.__version__}: {worst:.1e}")
        bad += worst > 2e-5
    sys.exit(bad)


if __name__ == "__main__":
    main()
