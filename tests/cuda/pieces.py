#!/usr/bin/env python3
"""pieces.py PROGRAMS: with tensor groups, all ranks of a tensor axis together make the same requests to cuBLASLt and
cuDNN as one rank alone; without groups, they make other requests. PROGRAMS: folder of the dry trainers."""

import collections
import json
import os
import re
import subprocess
import sys

BERT = ["--evaluate-samples", "1", "--sequence-length", "16", "--vocabulary-size", "8190", "--global-batch", "4", "--micro-batch", "4",
        "--layout", "padded"]
RESNET = ["--held-out", "0", "--depth", "14", "--width", "32", "--image-size", "32", "--classes", "16", "--global-batch", "4",
          "--micro-batch", "4"]
# The trainer, its model and the tensor groups.
MODELS = [("dry_bert", ["--preset", "mini", *BERT], 4), ("dry_bert", ["--preset", "small", *BERT], 8), ("dry_resnet50", RESNET, 4),
          ("dry_resnet50", RESNET, 8)]


def problems(command, ranks):
    """Counts the requests of all ranks. Caps alignments at 16 bytes, as deterministic devices do for cuBLASLt."""
    calls = collections.Counter()
    for rank in range(ranks):
        said = subprocess.run([*command, "--tensor-parallel", str(ranks)], capture_output=True, text=True, check=True,
                              env={**os.environ, "DHP_DRY_RANK": str(rank)}).stdout
        for use in json.loads(said[said.index("{"):])["problems"]:
            told = re.sub(r"(?<= )\d+(?=( \d+)*$)", lambda found: str(min(int(found[0]), 16)), use["problem"])
            calls[use["name"] + " " + told] += use["calls"]
    return calls


def differing(one, many, ranks):
    """Returns requests with a wrong count. Right: split work counts as on one rank, other work up to once per rank."""
    return sorted(asked for asked in one.keys() | many.keys() if not one[asked] <= many[asked] <= ranks * one[asked])


def main():
    programs, wrong = sys.argv[1], []
    for program, options, groups in MODELS:
        for precision in ("fp32", "bf16"):
            plain = [os.path.join(programs, program), "--data", "synthetic-resident", "--steps", "2", "--precision", precision, *options]
            command = [*plain, "--deterministic", "--tensor-groups", str(groups)]
            one = problems(command, 1)
            for ranks in (2, 4):
                many = problems(command, ranks)
                wrong += [f"{program} {precision}, {groups} groups: {one[asked]} of 1 rank, {many[asked]} of {ranks}: {asked}"
                          for asked in differing(one, many, ranks)]
            if not differing(problems(plain, 1), problems(plain, 2), 2):
                wrong.append(f"{program} {precision}: no difference without groups, so that this test cannot fail")
    print("problems of libraries", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
