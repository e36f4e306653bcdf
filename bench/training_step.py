"""One training step of the example models in dhp and in PyTorch, the same shapes, on the same cores, in fp32, and where
PyTorch has autocast in bf16 and fp16; also dhp in 16 bits against itself in fp32.

training_step.py PROGRAM [--threads N] [--rounds N] [--json FILE]: alternates steps, so that a busy machine slows both.
The ratio is that of the medians, above 1 where dhp is faster. Exits with status 77 if this Python has no torch.
"""
import argparse
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)

import peer_models
import results_file


class Dhp:
    def __init__(self, arguments, workload, type="f32"):
        self.process = subprocess.Popen([arguments.program, workload, str(arguments.threads), type], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def step(self):
        """Does one step; returns its seconds and loss."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit("bench_training_step failed")


def timed(step):
    """Returns a function that does a step and returns its seconds."""
    def run():
        start = time.perf_counter()
        step()
        return time.perf_counter() - start
    return run


def compare(workload, peers, arguments, type="f32"):
    """Returns rows of the table, one for each version of the peer."""
    dhp = Dhp(arguments, workload, type)
    ours, theirs = [], {name: [] for name in peers}
    for number in range(-2, arguments.rounds):  # two rounds to warm up
        seconds, _ = dhp.step()
        if number >= 0:
            ours.append(seconds)
        for name, step in peers.items():
            seconds = step()
            if number >= 0:
                theirs[name].append(seconds)
    dhp.close()
    mine = statistics.median(ours)
    rows = []
    for name, times in theirs.items():
        peer = statistics.median(times)
        rows.append({"workload": workload, "type": type, "peer": name, "dhp_s": mine, "peer_s": peer,
                     "ratio": peer / mine, "ratio_of_fastest": min(times) / min(ours), "rounds": len(times)})
        print("%-10s %-5s %-22s %8.3f %8.3f %8.2f %8.2f" % (workload, type, name, mine, peer, peer / mine,
                                                     min(times) / min(ours)), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="bench_training_step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    print("PyTorch %s, %d threads" % (torch.__version__, arguments.threads))
    print("%-10s %-5s %-22s %8s %8s %8s %8s" % ("step of", "type", "against", "dhp s", "peer s", "ratio", "fastest"))
    peers = {"bert-mini": {"plain": peer_models.bert_mini_step},
             "resnet50": {"NCHW": lambda type: peer_models.resnet50_step(False, type),
                          "channels_last": lambda type: peer_models.resnet50_step(True, type)}}
    rows = []
    for workload, ways in peers.items():
        fp32 = Dhp(arguments, workload)
        for type, of_peer in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
            theirs = {name: timed(make(of_peer)) for name, make in ways.items()}
            if type != "f32":
                theirs = {"autocast, " + name: step for name, step in theirs.items()}
                theirs["dhp in fp32"] = lambda: fp32.step()[0]
            rows += compare(workload, theirs, arguments, type)
        fp32.close()
    if arguments.json:
        results_file.save(arguments.json, {"peer": "PyTorch " + torch.__version__, "threads": arguments.threads, "rows": rows})


main()
