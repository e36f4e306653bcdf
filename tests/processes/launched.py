#!/usr/bin/env python3
"""launched.py SCRIPT TRAIN_RESNET50: trains with four ranks that a launcher starts (tests/launch/*.sh), and with four
threads. Losses and norms must be the same bits."""

import json
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
OPTIONS = ["--width", "8", "--image-size", "32", "--classes", "4", "--samples", "64", "--steps", "3", "--global-batch",
           "16", "--micro-batch", "2", "--evaluate-samples", "8", "--lr", "0.01", "--data-parallel", "2",
           "--pipeline-parallel", "2", "--comm-timeout", "60", "--metrics"]


def steps(path):
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


def main():
    script, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as temporary:
        threads, launched = (pathlib.Path(temporary) / name for name in ("threads", "launched"))
        ended = subprocess.run(["bash", script, "4", program, *OPTIONS, str(launched)], capture_output=True, text=True,
                               stdin=subprocess.DEVNULL, timeout=600)
        print(ended.stdout, ended.stderr, sep="", end="")
        if ended.returncode != 0:
            sys.exit(ended.returncode)
        assert ended.stderr.count("layout 2x1x2") + ended.stdout.count("layout 2x1x2") == 1, "rank 0 alone speaks"
        subprocess.run([program, *OPTIONS, str(threads)], check=True, capture_output=True, timeout=600)
        assert len(steps(threads)) == 3
        assert steps(launched) == steps(threads), f"launched {steps(launched)}, threads {steps(threads)}"


if __name__ == "__main__":
    main()
