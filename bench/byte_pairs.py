#!/usr/bin/env python3
"""byte_pairs.py PUBLISHED_TOKENS [LINES]: dhp's byte-level BPE beside Hugging Face's tokenizers (PyPI), on lines of
many scripts, emoji, digits, contractions, punctuation and spaces of all kinds, with the rules of GPT-2, Llama 3 and
Qwen 2, and with a vocabulary that dhp has trained. Exits with status 1 if tokens differ."""

import json
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

BLOCKS = [(0x20, 0x7e), (0xa0, 0x17f), (0x370, 0x3ff), (0x400, 0x4ff), (0x530, 0x58f), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f),
          (0x980, 0x9ff), (0xb80, 0xbff), (0xe00, 0xe7f), (0x10a0, 0x10ff), (0x1100, 0x11ff), (0x1200, 0x137f), (0x13a0, 0x13ff),
          (0x1780, 0x17ff), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2070, 0x209f), (0x20a0, 0x20cf), (0x2150, 0x218f), (0x2200, 0x22ff),
          (0x2460, 0x24ff), (0x2600, 0x26ff), (0x2e80, 0x2eff), (0x3000, 0x303f), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
          (0xff00, 0xffef), (0x10330, 0x1034f), (0x1d400, 0x1d7ff), (0x1f300, 0x1f64f), (0x1f900, 0x1f9ff), (0x20000, 0x2a6df)]
PARTS = (["the", "of", "and", "quick", "brown", "Fox", "jumps", "WORLD", "lower", "newest"],
         ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'\u017f", "'x", "' s", "''s", "\u2019s"],
         ["1", "12", "123", "1234", "12345678", "3.14", "\u0663\u0664", "\u00bd", "\u2167", "\uff11\uff12"],
         ["!", "...", "?!", "--", "(", ")", "[", "]", "\"", "'", "$", "#tag", "@x", "a_b", "http://x.y/z?q=1", "\u00ad", "\u0301"],
         [" ", "  ", "   ", "\t", "\n", "\n\n", " \n", "\r\n", "\r", " \t ", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\u200b",
          "\x1c", "\x0b", "<|endoftext|>", "<|endof"])
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def line(chance):
    made = ""
    for _ in range(chance.randint(1, 12)):
        if chance.random() < 0.4:
            points = (chr(chance.randint(*chance.choice(BLOCKS))) for _ in range(chance.randint(1, 8)))
            made += "".join(point for point in points if unicodedata.category(point) != "Cn")
        else:
            made += chance.choice(chance.choice(PARTS))
        made += " " * (chance.random() < 0.6)
    return made


def theirs(rule, lines):
    made = Tokenizer(models.BPE(ignore_merges=rule == "llama3"))
    if rule == "gpt2":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = LLAMA if rule == "llama3" else LLAMA.replace("{1,3}", "")
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=6000, special_tokens=["<|endoftext|>"], show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made.to_str()


def main():
    program, chance = sys.argv[1], random.Random(1)
    lines = [line(chance) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10000)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/text", "w", encoding="utf-8", newline="") as file:
            file.write("\n".join(lines))
        for rule in ("gpt2", "llama3", "qwen2", "dhp's own"):
            with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
                file.write(theirs(rule, lines) if rule != "dhp's own" else
                           subprocess.run([program, folder + "/text", "6000", "train"], check=True, capture_output=True, text=True).stdout)
            out = subprocess.run([program, folder, "decoder"], input="".join(json.dumps(each) + "\n" for each in lines), check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            reference = Tokenizer.from_file(folder + "/tokenizer.json")
            expected = [each.ids for each in reference.encode_batch(lines, add_special_tokens=False)]
            found = [[int(token) for token in each.split()] for each in out.splitlines()]
            differing = sum(a != b for a, b in zip(found, expected)) + abs(len(found) - len(expected))
            wrong += differing
            print(f"{rule}: {len(lines)} lines, {sum(map(len, expected))} tokens: {differing} lines differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
