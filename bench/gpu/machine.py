"""Describes the machine and its peak rates: machine.py OUT.json [--tiny]
The rates are those of a copy inside the device's memory, in bytes read and written, and of a bf16 matrix product of
8192^3 on random numbers, both through PyTorch. Other figures are shares of these bounds. --tiny: small, on the CPU.
"""
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

import torch

tiny = "--tiny" in sys.argv
device = "cpu" if tiny else "cuda"


def first_line(*command):
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return (said.stdout + said.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return None


def seconds_of(work, repeats):
    """Returns the median of single runs after a warm-up."""
    times = []
    for number in range(-3, repeats):
        if tiny:
            start = time.perf_counter()
            work()
            taken = time.perf_counter() - start
        else:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            taken = start.elapsed_time(end) / 1e3
        if number >= 0:
            times.append(taken)
    return statistics.median(times)


def copy_rate():
    count = (1 << 20) if tiny else (1 << 30)
    a = torch.randn(count, device=device)
    b = torch.empty_like(a)
    return 2 * 4 * count / seconds_of(lambda: b.copy_(a), 20)


def matrix_rate():
    size = 256 if tiny else 8192
    a, b = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: a @ b, 20)


def main():
    nvcc = first_line("sh", "-c", "(nvcc --version || /usr/local/cuda/bin/nvcc --version) 2>/dev/null | grep release")
    found = {"device": platform.processor() or "CPU" if tiny else torch.cuda.get_device_name(),
             "cores": os.cpu_count(),
             "pytorch": torch.__version__,
             "pytorch_cuda": torch.version.cuda,
             "pytorch_cudnn": None if tiny else torch.backends.cudnn.version(),
             "nvcc": re.sub(r".*release ", "", nvcc) if nvcc else None,
             "driver": first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
             "clocks": first_line("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader"),
             "copy_bytes_per_s": copy_rate(),
             "bf16_matrix_flop_per_s": matrix_rate()}
    if not tiny:
        found["multiprocessors"] = torch.cuda.get_device_properties(0).multi_processor_count
    with open(sys.argv[1], "w") as file:
        json.dump(found, file, indent=1)
    print("%(device)s: copy %(copy_bytes_per_s).3g B/s, bf16 8192^3 %(bf16_matrix_flop_per_s).3g FLOP/s" % found)


main()
