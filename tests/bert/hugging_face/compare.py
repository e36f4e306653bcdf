"""compare.py TOKENIZE_LINES: our words and ids against those of Hugging Face's BertTokenizer, cased
and uncased, on random strings of the Latin, Greek and Cyrillic blocks, punctuation,
ideographs, and of Hebrew, Arabic, Devanagari, kana and Hangul.
Skipped, aloud, without the Python package `tokenizers`."""

import os
import random
import subprocess
import sys
import tempfile
import unicodedata

try:
    from tokenizers import BertWordPieceTokenizer
except ImportError:
    print("SKIPPED: the Python package tokenizers is not installed")
    sys.exit(77)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def characters(*ranges):
    points = [c for first, last in ranges for c in range(first, last + 1)]
    return [chr(c) for c in points if c not in (10, 13) and unicodedata.category(chr(c)) != "Cn"]


def lines():
    random.seed(5)
    pools = [
        characters((0x20, 0x7E)),
        characters((1, 0x24F)),
        characters((0x1E00, 0x1FFF), (0x300, 0x36F), (97, 122)),
        characters((0x370, 0x52F), (32, 32), (97, 122)),
        characters((0x2000, 0x206F), (0x3001, 0x3011), (0x4E00, 0x4E20), (0x20000, 0x20010),
                   (0xFF01, 0xFF0F), (0xE000, 0xE003), (0xFEFF, 0xFEFF), (97, 122)),
        characters((0x5D0, 0x5EA), (0x5B0, 0x5BD), (0x621, 0x652), (0x900, 0x94D), (32, 32)),
        characters((0x3041, 0x30FF), (0xAC00, 0xAC80), (0xF900, 0xF910), (32, 32)),
    ]
    made = ["".join(random.choices(pool, k=random.randint(1, 40))) for pool in pools
            for _ in range(2000)]
    made += ["a" * 100 + " " + "a" * 101 + " b", "Z\u00fcrich na\u00efve \u0130stanbul \u1e9e",
             "x\x0by\x0cz\x85w"]
    return [line for line in made if not any(token in line for token in SPECIAL)]


def vocabulary():
    letters = [chr(c) for c in range(33, 0x250) if not chr(c).isspace()]
    letters = [c for c in letters if unicodedata.category(c)[0] != "C"]
    tails = ["##" + chr(c) for c in range(97, 123)]
    return SPECIAL + letters + tails + ["the", "##ing", "##er", "##\u00df\u00f8", "an", "##an"]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(vocabulary()) + "\n")
        sys.exit(1 if compare(path) else 0)


def compare(path):
    wrong = 0
    for options in ([], ["cased"]):
        theirs = BertWordPieceTokenizer(path, lowercase=not options)._tokenizer
        texts = lines()
        ours = subprocess.run([sys.argv[1], path] + options, input="\n".join(texts).encode(),
                              stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
        for text, line in zip(texts, ours):
            words, ids = line.rsplit("\t", 1)
            normal = theirs.normalizer.normalize_str(text)
            expected = [word for word, _ in theirs.pre_tokenizer.pre_tokenize_str(normal)]
            expected_ids = theirs.encode(text, add_special_tokens=False).ids
            if (words.split("\x1f") if words else []) != expected or \
                    [int(i) for i in ids.split()] != expected_ids:
                wrong += 1
                print("differs:", ascii(text), ascii(words), ascii(expected))
        print(len(texts), "lines", "cased" if options else "uncased")
    print(wrong, "lines differ")
    return wrong


main()
