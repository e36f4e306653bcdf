#!/usr/bin/env python3
"""generation.py SCORE_GPT OPTION...: tokens per second of score_gpt with these options, in turns with and without its
cache of keys and values. Prints the best rate of each and their ratio."""

import json
import re
import subprocess
import sys


def speed(*words):
    said = subprocess.run([*sys.argv[1:], *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr.decode()
    return float(re.search(r"\(([\d.e+]+) tokens/s\)", said)[1])


best = {"cache": 0.0, "no cache": 0.0}
for _ in range(3):
    best["cache"] = max(best["cache"], speed())
    best["no cache"] = max(best["no cache"], speed("--no-cache"))
print(json.dumps({"tokens_per_s": best, "ratio": round(best["cache"] / best["no cache"], 2)}))
