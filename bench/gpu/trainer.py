"""Runs a trainer of examples/ from a script, and checks that the trainer knows its options."""
import json
import os
import re
import subprocess

# Options that only GPU trainers have. Without such a trainer they can only be read from the sources.
of_gpus = ["--device", "--cuda-graphs", "--no-cuda-graphs", "--offload"]


def parsed(parser):
    """Parses the arguments of a script that runs trainers."""
    parser.add_argument("--trainers", default="build/cuda/examples")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args()


class Trainer:
    def __init__(self, program, options, folder):
        self.metrics = os.path.join(folder, "metrics.jsonl")
        self.command = [program, *map(str, options), "--lr-decay", "constant", "--metrics", self.metrics]

    def steps(self, more, warm_up, count, seconds=200):
        """Returns the metrics of `count` steps after the warm-up; `more`: further options of this run."""
        if os.path.exists(self.metrics):
            os.remove(self.metrics)
        done = subprocess.run([*self.command, *more, "--steps", str(warm_up + count)], capture_output=True, text=True,
                              timeout=seconds)
        if done.returncode != 0:
            raise RuntimeError((done.stderr.strip().splitlines() or ["status %d" % done.returncode])[-1])
        with open(self.metrics) as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if "samples_per_s" in line][warm_up:]


def samples_per_s(steps):
    """Returns samples per second without the steps that fp16 skipped, which cost less."""
    timed = [step for step in steps if not step.get("skipped")]
    return len(timed) / sum(1 / step["samples_per_s"] for step in timed)


def option(command, name):
    return float(command[command.index(name) + 1])


def check_options(command):
    """Returns whether the command's program lacks one of its options, and prints which."""
    said = subprocess.run([command[0], "--help"], capture_output=True, text=True).stdout
    sources = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "options", "options.cpp")
    wrong = 0
    for name in [word for word in command if word.startswith("--")]:
        text = said
        if name in of_gpus:
            with open(sources) as file:
                text = file.read()
        if not re.search(r"(^|[\s,\"!])%s\b(?!-)" % name, text, re.M):
            print("%s has no option %s" % (command[0], name))
            wrong = 1
    return wrong
