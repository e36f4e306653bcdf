#!/usr/bin/env python3
"""bigram.py MODEL TRAIN TEST: perplexity of a bigram model of the text TRAIN on TEST, beside score_gpt's. Tokens are
those of MODEL, a folder that train_gpt has exported. A token's probability after another is interpolated with its own
(Witten and Bell 1991), with add-one counts (Laplace), so none is zero. Needs tokenizers (PyPI)."""

import collections
import json
import math
import pathlib
import sys

from tokenizers import Tokenizer

END = "<|endoftext|>"


def documents(tokenizer, path):
    """Yields the tokens of each text, between an end token before it and one after it."""
    end = tokenizer.token_to_id(END)
    for text in pathlib.Path(path).read_text(encoding="utf-8").split(END):
        if text.strip():
            yield [end, *tokenizer.encode(text, add_special_tokens=False).ids, end]


def main():
    model, train, test = sys.argv[1:]
    tokenizer = Tokenizer.from_file(str(pathlib.Path(model) / "tokenizer.json"))
    words = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    single, pairs = collections.Counter(), collections.defaultdict(collections.Counter)
    for row in documents(tokenizer, train):
        single.update(row[1:])
        for before, token in zip(row, row[1:]):
            pairs[before][token] += 1
    total = sum(single.values())
    loss = {"unigram": 0.0, "bigram": 0.0}
    count = 0
    for row in documents(tokenizer, test):
        for before, token in zip(row, row[1:]):
            alone = (single[token] + 1) / (total + words)
            seen = pairs[before]
            after = (seen[token] + max(1, len(seen)) * alone) / (seen.total() + max(1, len(seen)))
            loss["unigram"] -= math.log(alone)
            loss["bigram"] -= math.log(after)
            count += 1
    print(json.dumps({"tokens": count} | {name: math.exp(sum_ / count) for name, sum_ in loss.items()}))


if __name__ == "__main__":
    main()
