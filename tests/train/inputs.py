#!/usr/bin/env python3
"""inputs.py TRAIN_BERT TRAIN_RESNET50, with the other programs in the same folder: mistakes on the command line and in
files, and the sentence that answers each. A configuration file repeats the run that wrote it."""

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
GPT_CONFIG = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 4, "bos_token_id": 0,
              "eos_token_id": 0}
GPT_WORDS = {"model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}, "merges": ["a b"]},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
# Folders of decoders: name, and the contents of config.json and tokenizer.json; None if the file is missing.
DECODERS = {
    "torn": ("{", GPT_WORDS), "endless": ({**GPT_CONFIG, "eos_token_id": []}, GPT_WORDS),
    "beyond": ({**GPT_CONFIG, "eos_token_id": [0, 4]}, GPT_WORDS), "wordless": (GPT_CONFIG, None),
    "numbers": (GPT_CONFIG, {**GPT_WORDS, "model": {**GPT_WORDS["model"], "merges": [[1, 2]]}}),
    "few": ({**GPT_CONFIG, "vocab_size": 9, "eos_token_id": 8}, GPT_WORDS)}
LITTLE = ["--steps", "2", "--global-batch", "4", "--micro-batch", "2", "--held-out", "0"]
RESNET = [*LITTLE, "--image-size", "8", "--width", "2", "--depth", "14"]
BERT = [*LITTLE, "--preset", "tiny", "--sequence-length", "16"]
CLASSES = [*BERT, "--task", "classify", "--vocabulary-size", "40", "--text-column", "text", "--label-column", "label", "--data"]

# Tables of texts and labels, each with the exit status and a part of the output. ROWS has four good rows.
ROWS = "".join(f"The cat number {number}.,{label}\n" for number, label in enumerate("nppn"))
TABLES = [
    ("empty.csv", f"text,label\n{ROWS}A dog.,\n", 1, "empty.csv, line 6: its label is empty; give it one"),
    ("comma.csv", f"text,label\n{ROWS}\nHowever, a dog.,p\n", 1,
     "comma.csv, line 7: it has 3 fields, and the first line has 2; a text with a comma stands in quotes"),
    ("twice.csv", f"label,label\n{ROWS}", 1, "twice.csv, line 1: column label stands there twice; rename one of them"),
    ("capital.CSV", f"text,label\n{ROWS}A dog.,P\n", 0, "warning: capital.CSV, line 3: the labels p and P differ in capitals"),
    ("number.csv", f"text,label\n{ROWS}a,1\nb,1.0\n", 1, "number.csv, line 7: the label 1.0 is the same number as 1 of line 6; write"),
    ("large.csv", f"text,label\n{ROWS}a,9007199254740992\nb,9007199254740993\n", 0, " 4 classes"),
    ("large.jsonl", '{"text": "a b", "label": 18446744073709551616}\n{"text": "c", "label": 18446744073709551617}\n', 1,
     'large.jsonl, line 1: "label" has more digits than a number keeps; write it as a text, in quotes'),
    ("values.csv", "text,label\n" + "".join(f"a b,{at / 8}\n" for at in range(11)), 1,
     "values.csv has 11 different numbers as labels, such as 0.125: --task classify needs classes, not values of a regression"),
    ("own.csv", "text,label\n" + "".join(f"a b,id{at}\n" for at in range(11)), 1, "each of its samples has a label of its own"),
    ("spaces.csv", f"text,label\n{ROWS}A dog., p\nA fish.,n\u00a0\n", 0,
     "warning: spaces.csv, line 6: spaces around a label are left out; so have 1 more"),
    ("nan.csv", f"text,label\n{ROWS}A dog.,NaN\nA cat.,1\n", 0, "warning: nan.csv, line 6: the label NaN looks like a missing one"),
    ("quotes.tsv", "text\tlabel\n\"The deal , he said\tn\n\" No \" she said\tp\n", 0,
     "warning: quotes.tsv: its quotes do not stand around fields, and are letters"),
    ("null.jsonl", '{"text": "a b", "label": "n"}\n{"text": "c", "label": null}\n', 1, 'null.jsonl, line 2: "label" is null'),
]

# Contents of option files, the number of the wrong line, and its error.
FILES = [
    ("lr=0.1\nsteps=-1\n", 2, "--steps: -1 is not a number of 0 or more"),
    ("\n# a comment\nlr=1e400\n", 3, "--lr: 1e400 is not a finite number from 1e-307 to 1e308 in size"),
    ('steps=2\nsave=""\n', 2, "--save is empty: is a shell variable unset?"),
    ("save=\n", 1, "--save is empty: is a shell variable unset?"),
    ("save\n", 1, "save has no value; write save = VALUE"),
    ("lr=1\nsteps=2\nlr=2\n", 3, "lr stands in line 1 already; leave one of them out"),
    ("[train]\nsteps=2\n", 1, "[train] begins a section; write options without sections"),
    ("freeze=[\n'a',\n", 1, "freeze begins a list without an end; add a ]"),
    ("steps=2\rlr=1\r", 1, "has control characters; save it as UTF-8, a line for each option"),
    ('schedule="1b1f"\n', 1, 'there is no schedule "1b1f"; choose one of gpipe, 1f1b, '),
    ("config='a.toml'\n", 1, "config is for the command line only"),
    ("--steps=2\n", 1, 'there is no option "--steps"; did you mean steps?'),
]

# Program, options, exit status, and a part of the output.
TABLE = [
    # mistyped options
    ("bert", ["--microbatch", "4"], 2, "--microbatch 4; did you mean --micro-batch? (--help lists all options)"),
    ("bert", ["--tensor", "4"], 2, "did you mean --tensor-parallel?"),
    ("bert", ["--setps=4"], 2, "--setps=4; did you mean --steps?"),
    ("bert", ["--save-evry", "4"], 2, "--save-evry 4; did you mean --save-every?"),
    ("bert", ["--depth", "50"], 2, "not expected: --depth 50 (--help"),
    ("bert", ["--pipeline_chunks", "4"], 2, "did you mean --pipeline-chunks?"),
    ("resnet", ["--augmnet"], 2, "did you mean --augment?"),
    # values
    ("bert", ["--held-out", "nan"], 2, "--held-out: nan is not a finite number"),
    ("bert", ["--peak-tflops", "-1"], 2, "--peak-tflops: -1 is not a number of 0 or more"),
    ("bert", ["--peak-tflops", "much"], 2, "--peak-tflops: much is not a number, such as 0.5"),
    ("bert", ["--schedule", "1b1f"], 2, 'there is no schedule "1b1f"; choose one of gpipe, 1f1b, '),
    ("bert", ["--schedule", "pipe.csv"], 2, "--schedule pipe.csv is a device, a pipe or a folder; give a file"),
    ("bert", ["--schedule", "nowhere.csv"], 2, "cannot open nowhere.csv: No such file"),
    ("bert", ["--schedule", "wrong.csv"], 2, 'wrong.csv, line 1, cell 2: "0X0" is no action; give the part of the model'),
    ("bert", [*BERT, "--schedule", "late.csv", "--pipeline-parallel", "2"], 2, "micro-batch 1"),
    ("bert", ["--steps", "3", "--epochs", "2"], 2, "--steps excludes --epochs"),
    ("bert", ["--config", "nowhere.toml"], 2, "File does not exist: nowhere.toml"),
    ("bert", ["--save="], 2, "--save is empty: is a shell variable unset? (--help"),
    ("bert", ["--save"], 2, "--save is empty: is a shell variable unset?"),
    ("bert", ["--save", "--deterministic"], 2, "--save has no value before --deterministic: is a shell variable unset?"),
    ("bert", ["--steps", "3", ""], 2, "not expected: an empty one: is a shell variable unset?"),
    ("bert", ["--steps", "3", "--steps", "4"], 2, "--steps is given twice; leave one of the two out"),
    ("compare", ["a", ""], 2, "FILES is empty"),
    ("onnx", ["a", " "], 2, "OUTPUT is empty"),
    # numbers
    ("bert", ["--lr", "1e400"], 2, "--lr: 1e400 is not a finite number"),
    ("bert", ["--lr", "1e-400"], 2, "--lr: 1e-400 is not a finite number"),
    ("bert", ["--lr", "1e300"], 2, "--lr: 1e300 is not a number from 0 to 1e+06"),
    ("bert", ["--lr", "0,1"], 2, "--lr: 0,1 is not a number, such as 0.5 or 1e-3"),
    ("bert", ["--seed", "-1"], 2, "--seed: -1 is not a whole number of 0 or more, in digits"),
    ("bert", ["--seed", "18446744073709551616"], 2, "is beyond 18446744073709551615, the largest number allowed"),
    ("bert", ["--steps", "1e3"], 2, "--steps: 1e3 is not a whole number, in digits"),
    ("bert", ["--steps", "9223372036854775807"], 2, "is beyond 1000000000000, the largest"),
    ("bert", ["--threads", "4294967297"], 2, "is beyond 2147483647, the largest"),
    ("bert", ["--loader-threads", "100000"], 2, "--loader-threads: 100000 is not a number from 0 to 1024"),
    ("bert", ["--grace", "1e300"], 2, "--grace: 1e300 is not a number from 0.001 to 1e+09"),
    ("resnet", ["--classes", "1000000000000"], 2, "--classes: 1000000000000 is not a number from 0 to 1e+07"),
    ("bert", ["--rank", "0"], 2, "--rank requires --world-size"),
    ("doctor", ["--ranks", "1e3"], 64, "--ranks: 1e3 is not a whole number"),
    ("bert", [*BERT, "--seed", "010", "--lr", "+1e-3"], 0, "summary of steps 1 to 2 on 1 rank:"),
    # where metrics and other files go
    ("bert", [*BERT, "--metrics", "/dev/full"], 1, "cannot write --metrics /dev/full: No space left on device"),
    ("bert", [*BERT, "--metrics", "pipe"], 1, "--metrics pipe: is a pipe that nobody reads; start its reader before the run"),
    ("bert", [*BERT, "--metrics", "/dev/stdout"], 0, '{"step":2,"loss":'),
    ("bert", [*BERT, "--metrics", "one", "--trace", "./one"], 2, "--metrics and --trace are one file, ./one; give each a file of its own"),
    ("bert", [*BERT, "--trace", "pipe"], 1, "pipe is not a file; give the name of one"),
    ("bert", [*BERT, "--save", "s", "--export", "typo.toml"], 2, "--export typo.toml is a file; give a directory"),
    ("compare", ["/dev/zero", "typo.toml"], 2, "/dev/zero is a device or a pipe; give a file"),
    ("compare", ["pair.jsonl", "typo.toml"], 2, "typo.toml is no file of --metrics or --trace-values, and pair.jsonl is one"),
    ("compare", ["pair.jsonl", "torn.jsonl"], 0, "the same"),
    # paths that the system refuses
    ("compare", ["pair.jsonl", "x" * 256], 2, f"error: cannot look at {'x' * 256}: File name too long"),
    ("bert", [*BERT, "--metrics", "x" * 256], 2, f"error: cannot look at {'x' * 256}: File name too long"),
    ("bert", [*BERT, "--data", "x" * 256], 1, f"error: cannot look at {'x' * 256}: File name too long"),
    ("bert", [*BERT, "--metrics", "nowhere/m.jsonl"], 1, "cannot write --metrics nowhere/m.jsonl: No such file or directory"),
    ("bert", [*BERT, "--load", "w", "--save", "s", "--export", "./w"], 2,
     "--export ./w would replace the weights that --load w reads; give another directory"),
    ("bert", [*BERT, "--save", "s", "--export", "typo.toml/e"], 1, "cannot make the directory typo.toml/e: Not a directory"),
    ("resnet", ["--data", "images", "--save", "half/../images/run"], 1,
     "--save half/../images/run lies in --data images, all of whose files are training data; choose another place"),
    ("gpt", ["--data", ".", "--metrics", "m.jsonl"], 1, "--metrics m.jsonl lies in --data ., all of whose files are training data"),
    ("gpt", ["--data", ".", "--trace-values", "v"], 1, "--trace-values v lies in --data ., all of whose files are training data"),
    ("gpt", ["--data", ".", "--test-data", "typo.toml"], 1, "--test-data typo.toml lies in --data ., all of whose files are training"),
    ("bert", ["--data", "half", "--text-cache", "half/c"], 1, "--text-cache half/c lies in --data half, all of whose files are"),
    ("schedules", ["--csv", "s.csv"], 2, "--csv is for one pipeline: give its --stages"),
    ("schedules", ["--stages", "2", "--csv", "best"], 2, "--csv best: its name does not end in .csv"),
    ("schedules", ["--stages", "2", "--micro-batches", "2", "--csv", "/dev/stdout"], 0, "0F0,0F1,"),
    ("schedules", ["--stages", "2", "--csv", "nowhere/s.csv"], 1, "cannot write --csv nowhere/s.csv: No such file or directory"),
    ("goodput", ["--ranks", "12"], 1, "error: replicas of 8 ranks do not add up to 12: give other --ranks or --ranks-per-replica"),
    ("goodput", ["--ranks", "1000000", "--failure-hours", "1"], 1, "the simulation of 30 days with 7.2e+08 failures, 0 slow ranks and "),
    ("goodput", ["--slow-hours", "1e-9"], 1, " slow ranks and 11368 checkpoints takes too long: give fewer --days"),
    ("goodput", ["--save-s", "0", "--step-s", "0.01"], 1, " and 259200000 checkpoints takes too long: give fewer --days"),
    ("goodput", ["--slow-s", "60"], 2, "--slow-s needs --slow-hours"),
    ("goodput", ["--step-s", "1e-300"], 2, "--step-s: 1e-300 is not a number from 0.001 to 1e+09"),
    ("goodput", ["--save-s", "0", "--days", "1", "--ranks", "64"], 0, "Daly's interval is 10 s"),
    # files of options
    ("bert", ["--config", "/dev/zero"], 2, "--config: /dev/zero is a device, not a file"),
    ("bert", ["--config", "typo.toml"], 2, 'typo.toml, line 1: there is no option "microbatch"; did you mean micro-batch? (--help'),
    *[("bert", ["--config", f"file{at}.toml"], 2, f"file{at}.toml, line {line}: {said}" + " (--help" * (not said.endswith(" "))) for at, (_, line, said) in enumerate(FILES)],
    ("bert", ["--config", "good.toml"], 0, "summary of steps 1 to 2 on 1 rank:"),
    ("bert", ["--config", "good.toml", "--epochs", "1", "--samples", "12"], 0, "summary of steps 1 to 3 on 1 rank:"),
    # options that do not go together
    ("bert", ["--save-every", "3"], 2, "--save-every needs --save DIR to write to"),
    ("bert", ["--pipeline-chunks", "2"], 2, "--pipeline-chunks 2 needs --schedule interleaved"),
    ("bert", ["--export", "w"], 2, "--export takes the weights of the last checkpoint: it needs --save DIR, too"),
    ("bert", [*BERT, "--stop-early", "masked_loss", "--evaluate-every", "1"], 1, "--stop-early: no samples are held out, and there is"),
    ("bert", ["--global-batch", "30"], 2, "--global-batch 30 is not a multiple of --micro-batch 8"),
    ("bert", ["--optimizer", "adam"], 2, "--optimizer: adam not in {adamw,lamb,lars,sgd}"),
    ("bert", ["--reducer", "delayed", "--deterministic"], 2, "--deterministic sums the gradients of a step exactly in that step"),
    ("bert", ["--reducer", "delayed", "--precision", "fp16"], 2, "--reducer delayed is for --precision fp32, bf16 or fp64: the loss scale"),
    ("bert", ["--reducer", "local", "--precision", "bf16"], 2, "--reducer local is for --precision fp32 or fp64: the optimizer does not step on the 16-bit weights"),
    ("bert", ["--reducer", "local", "--elastic", "1:2"], 2, "--elastic needs replicas that take each step together"),
    ("bert", ["--reducer", "local", "--zero", "1"], 2, "--zero shards buckets of gradients, but --reducer local has none"),
    ("bert", ["--reducer", "local", "--data-parallel", "5"], 2, "--reducer local needs a micro-batch for each replica"),
    ("bert", ["--synthetic-gradients"], 2, "--synthetic-gradients needs --pipeline-parallel 2 or more"),
    ("bert", ["--synthetic-gradients", "--pipeline-parallel", "2", "--deterministic"], 2,
     "--synthetic-gradients does not work with --deterministic"),
    ("bert", ["--synthetic-gradients", "--pipeline-parallel", "2", "--precision", "bf16"], 2, "is for --precision fp32 or fp64"),
    ("bert", ["--reducer-delay", "2"], 2, "--reducer-delay is for --reducer delayed"),
    ("bert", ["--reducer", "delayed", "--outer-lr", "0.5"], 2, "--outer-lr is for --reducer local"),
    ("resnet", ["--reducer", "local", "--sync-batch-norm"], 2, "--sync-batch-norm does not work with --reducer local"),
    ("bert", ["--data-parallel", "2", "--reducer", "top-k", "--deterministic"], 2, "--reducer top-k cannot send; choose plain or bucketed"),
    ("bert", ["--data-parallel", "2", "--reducer", "powersgd", "--zero", "1"], 2, "but --reducer powersgd has none"),
    ("bert", ["--reducer", "one-bit", "--elastic", "2:4"], 2, "--elastic would lose what --reducer one-bit has not sent yet"),
    ("bert", ["--elastic-axes", "all"], 2, "--elastic-axes all needs --elastic LEAST:MOST"),
    ("bert", ["--reducer", "top-k", "--reducer-rank", "2"], 2, "--reducer-rank is for --reducer powersgd"),
    ("bert", ["--reducer", "top-k", "--reducer-share", "0"], 2, "--reducer-share 0 would send nothing"),
    ("bert", [*BERT, "--load", "saved/latest"], 1, "saved/latest is a file of a run; give its folder saved"),
    ("bert", [*BERT, "--load", "nan.safetensors", "--precision", "fp16"], 1,
     "no step has changed the weights: the gradients of all overflowed in fp16, and the last loss is nan; are weights or data damaged?"),
    # files of another kind
    ("bert", ["--load", "model.pth"], 2, "--load model.pth: dhp reads no .pth files, only its own checkpoints and .safetensors"),
    ("bert", ["--load", "pytorch_model.bin"], 2, "safetensors.torch.save_file"),
    ("bert", ["--data", "lines.jsonl"], 1, "lines.jsonl has columns: name the one with the text by --text-column"),
    ("bert", ["--data", "typo.toml", "--vocabulary", "lines.json"], 1, "lines.json: is JSON; BERT needs a vocab.txt with one token per line"),
    ("bert", ["--data", "lines.json"], 1, "lines.json: is JSON, not text; convert it"),
    ("bert", [*CLASSES, "images"], 1, "images: is not a file; --task classify reads one with a sample per line"),
    ("bert", ["--data", "images"], 1, "images/cat/1.png: is an image, and BERT learns from text; train_resnet50 takes images"),
    ("bert", ["--data", "nowhere"], 1, "--data nowhere: there is no such file or directory"),
    ("resnet", ["--data", "lines.jsonl"], 1, "--data lines.jsonl: is a file; images come from a directory"),
    ("resnet", ["--data", "images", "--test-data", "shards"], 1, "shards: holds no directory of a class"),
    ("resnet", ["--data", "images", "--test-data", "nowhere"], 1, "--test-data nowhere: there is no such directory"),
    ("resnet", [*RESNET, "--test-data", "images"], 1, "--test-data images: is not read with synthetic images"),
    ("resnet", ["--data", "half"], 1, "half/train-images-idx3-ubyte has no train-labels-idx1-ubyte beside it"),
    ("resnet", ["--data", "idx", "--normalize", "imagenet"], 1, "--normalize imagenet is for images of 3 channels, and these have 1"),
    ("resnet", ["--data", "idx", "--test-data", "colored"], 1,
     "colored/t10k-images-idx3-ubyte: has images of 3 channels, and idx/train-images.idx3-ubyte has 1"),
    # decoders
    ("score_gpt", ["--model", "torn", "--prompt", "a"], 1, "torn/config.json is damaged: it is no JSON object"),
    ("score_gpt", ["--model", "endless", "--prompt", "a"], 1, 'endless/config.json: "eos_token_id" names no token that ends'),
    ("score_gpt", ["--model", "beyond", "--prompt", "a"], 1, '"eos_token_id" is 4, and the model has the tokens 0 to 3'),
    ("score_gpt", ["--model", "numbers", "--prompt", "a"], 1, "numbers/tokenizer.json is damaged: type must be string, but is number"),
    ("score_gpt", ["--model", "few", "--prompt", "a", "--output", "nowhere/x.npy"], 1, "cannot write --output nowhere/x.npy: No such file"),
    ("score_gpt", ["--model", "nowhere", "--prompt", " "], 1, "--model nowhere: there is no such folder or file"),
    ("score_gpt", ["--model", "nowhere", "--prompt", os.fsdecode(b"caf\xe9")], 1, "--model nowhere: there is no such folder or file"),
    ("score_gpt", ["--model", "few", "--input", "lines.jsonl", "--top-k", "2"], 2, "--top-k does nothing with --input: it is for --prompt"),
    ("score_gpt", ["--model", "few", "--input", "lines.jsonl", "--output", "x.npy"], 2, "--output does nothing with --input: it is for --prompt"),
    ("gpt", ["--data", os.fsdecode(b"caf\xe9")], 2, "--data: the value is not UTF-8, so checkpoints cannot keep it; rename it"),
    ("score_gpt", ["--model", "few", "--prompt", "a", "--text-column", "text"], 2, "--text-column does nothing with --prompt"),
    ("score_gpt", ["--model", "few", "--prompt", "a", "--batch", "2"], 2, "--batch does nothing with --prompt: it is for --input"),
    ("score_gpt", ["--model", "few", "--prompt", "a", "--top-k", "2"], 2, "--top-k does nothing with --temperature 0, which"),
    ("gpt", ["--load", "wordless", "--data", "typo.toml"], 1, "wordless has no tokenizer.json, which its model needs"),
    ("gpt", ["--load", "few", "--data", "typo.toml"], 1, "tokenizer.json has 4 tokens, but the model separates documents by token 8; is it"),
    ("gpt", ["--data", "typo.toml", "--text-column", "text"], 1, "--text-column text: typo.toml has no .csv, .tsv or .jsonl file, and no"),
    ("gpt", ["--vocabulary", "typo.toml"], 1, "--vocabulary typo.toml does not fit --data synthetic, which has a vocabulary of its own"),
    ("gpt", ["--lora", "query", "--save", "s", "--export-adapter", "a", "--data", "nowhere"], 1, "--export-adapter: PEFT has one adapter"),
    ("bert", ["--lora", "dense", "--lora-dropout", "0.1", *BERT], 1, "the adapter of cls.predictions.transform.dense cannot have dropout"),
    ("gpt", ["--lora", "qurey", *LITTLE], 1, "no linear layer of the model is called qurey; give the whole name of a layer"),
    # shards
    ("resnet", ["--data", "shards"], 1, "shards/torn.tar, byte 0: the file ends in the middle of a tar header; --skip-bad leaves out"),
    ("resnet", ["--data", "shards", "--skip-bad"], 1, "shards/torn.tar: holds no sample that can be read"),
    ("resnet", ["--data", "shards/*.tfrecord"], 1, "--data shards/*.tfrecord: there is no such file or directory"),
    ("resnet", ["--data", "shards/torn.*"], 1, "shards/torn.tar, byte 0: "),
    ("resnet", ["--data", "noise.tfrecord"], 1, "noise.tfrecord, byte 0: not a TFRecord, or damaged"),
    ("resnet", ["--data", "shards", "--first-label", "-1"], 2, "--first-label: -1 is not a number of 0 or more"),
    ("resnet", ["--normalize", "cifar"], 2, "--normalize: cifar not in {data,imagenet}"),
    # another run's output
    ("bert", [*BERT, "--metrics", "other.jsonl"], 1, "--metrics other.jsonl has 2 steps of another run; go on with that run by --load"),
    ("bert", [*BERT, "--metrics", "other.jsonl", "--elastic", "1:1", "--rank", "0", "--world-size", "1", "--master", "127.0.0.1"], 1,
     "--metrics other.jsonl has 2 steps of another run"),
    ("bert", [*BERT, "--metrics", "typo.toml", "--overwrite"], 1, "--metrics typo.toml is a file of something else; choose another"),
    ("bert", [*BERT, "--save", "saved"], 1,
     "(step-00000002): go on from them with --load saved, choose another directory, or allow to --overwrite them"),
    ("bert", [*BERT, "--metrics", "other.jsonl", "--overwrite"], 0, "summary of steps 1 to 2 on 1 rank:"),
    # More ranks than a process can start as threads.
    ("bert", ["--data-parallel", "2048"], 1, "has more than the 1024 ranks that one process can start as threads"),
    ("bert", ["--data-parallel", "2048", "--global-batch", "2048", "--micro-batch", "1", "--rank", "1", "--world-size", "2048",
              "--master", "127.0.0.1:9", "--comm-timeout", "0.2"], 1, "rank 1 has found no store of job"),
    # warnings, after which the program goes on
    ("bert", [*BERT, "--reducer", "one-bit"], 0, "warning: --reducer one-bit does nothing with one replica"),
    ("bert", [*BERT, "--warmup", "3"], 0,
     "warning: --warmup 3 is longer than this run of 2 steps: the learning rate does not reach --lr 0.001"),
    ("bert", [*BERT, "--schedule", "interleaved", "--pipeline-parallel", "2"], 0,
     "warning: --schedule interleaved with one part of the model per stage is 1f1b"),
    *(("bert", [*BERT, option, value], 0, f"warning: {option} does nothing without --data PATH")
      for option, value in (("--text-column", "a"), ("--text-cache", "words"), ("--sentences", "lines"))),
    ("bert", [*BERT, "--evaluate-every", "1"], 0, "warning: --evaluate-every does nothing without --held-out"),
    ("bert", [*BERT, "--bucket-mb", "1", "--reducer", "plain", "--data-parallel", "2"], 0,
     "warning: --bucket-mb does nothing without --reducer bucketed or --zero"),
    ("gpt", [*BERT, "--text-cache", "words"], 0, "warning: --text-cache does nothing without --data PATH"),
    ("gpt", ["--vocabulary-size", "513", *LITTLE], 0,
     "warning: --vocabulary-size above 512 does nothing without --data PATH or synthetic-resident"),
    *(("resnet", [*options, *RESNET], 0,
       f"warning: {options[0]} does nothing without {needed}")
      for options, needed in ((["--exif"], "--data PATH"), (["--skip-bad"], "--data PATH"), (["--cache-gb", "1"], "--cache"),
                              (["--cache", "fast"], "shards in --data"), (["--index", "fast"], "shards in --data"),
                              (["--first-label", "1"], "shards in --data"))),
    ("bert", [*BERT, "--transport", "gloo"], 0, "warning: --transport does nothing without ranks that are processes"),
    ("bert", [*BERT, "--stop-after", "0", "--patience", "2"], 0, "warning: --patience does nothing without --stop-early"),
    # Synthetic text does not take its words from the loaded folder, so nothing is said about the size of the vocabulary.
    ("bert", [*BERT, "--load", "w", "--vocabulary-size", "512", "--patience", "2"], 0,
     "warning: --patience does nothing without --stop-early"),
    ("bert", [*BERT, "--momentum", "0.5"], 0, "warning: --momentum does nothing without --optimizer sgd or lars"),
    ("resnet", ["--lora-rank", "2", *RESNET], 0, "warning: --lora-rank does nothing without --lora"),
    ("bert", ["--evaluate-only", "--load", "saved", "--save", "x"], 2, "--evaluate-only leaves nothing to save: leave out --save"),
    ("bert", [*BERT, "--load", "saved", "--evaluate-only", "--trace", "t"], 2,
     "--evaluate-only has no steps: leave out --trace and --trace-values"),
    # The last step of an epoch has one micro-batch.
    ("resnet", [*RESNET[6:], "--global-batch", "16", "--micro-batch", "4", "--samples", "50", "--epochs", "1.1", "--sync-batch-norm",
                "--data-parallel", "4", "--axes", "auto"], 0, "summary of steps 1 to 5 on 4 ranks:"),
    ("bert", ["--load", "saved", "--steps", "4", "--stop-after", "2"], 75,
     "nothing is left to do up to --stop-after 2: saved is after step 2"),
    ("bert", [*BERT, "--sequence-parallel"], 0, "warning: --sequence-parallel does nothing without --tensor-parallel"),
    ("gpt", [*BERT, "--deterministic", "--verify-every", "1", "--context-parallel", "2"], 2,
     "--context-parallel is not for --verify-every"),
    ("gpt", [*BERT, "--context-groups", "2"], 2, "--context-groups needs --deterministic"),
    ("bert", [*BERT, "--synthetic-gradients", "--axes", "auto"], 2, "needs --pipeline-parallel instead of --axes auto"),
    ("gpt", [*BERT, "--context-attention", "heads"], 0,
     "warning: --context-attention does nothing without --context-parallel"),
    ("bert", [*BERT, "--data-parallel", "2", "--reducer", "delayed"], 0, "skipped: no gradient has come yet"),
    ("bert", [*BERT, "--pipeline-parallel", "2", "--synthetic-gradients"], 0, "schedule of synthetic gradients"),
    ("bert", [*BERT, "--data-parallel", "3"], 0, "warning: a step has 2 micro-batches for 3 replicas, so that 1 of them do nothing"),
]


TABLE += [("bert", [*CLASSES, name], status, sentence) for name, _, status, sentence in TABLES]


def run(programs, program, options, folder):
    done = subprocess.run([programs[program], *options], cwd=folder, capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def mistakes(programs, folder):
    (folder / "images" / "cat").mkdir(parents=True)
    (folder / "images" / "cat" / "1.png").write_bytes(PNG)
    (folder / "idx").mkdir()
    (folder / "half").mkdir()
    (folder / "half" / "train-images-idx3-ubyte").write_bytes(b"")
    (folder / "idx" / "train-images.idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 4, 8, 8) + bytes(256))
    (folder / "idx" / "train-labels.idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 4) + bytes(4))
    (folder / "colored").mkdir()
    (folder / "colored" / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">5I", 0x804, 4, 8, 8, 3) + bytes(768))
    (folder / "colored" / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 4) + bytes(4))
    (folder / "shards").mkdir()
    (folder / "shards" / "torn.tar").write_bytes(bytes(100))
    (folder / "noise.tfrecord").write_bytes(bytes(range(100)))
    for name, files in DECODERS.items():
        (folder / name).mkdir()
        for file, contents in zip(("config.json", "tokenizer.json"), files):
            if contents is not None:
                (folder / name / file).write_text(contents if isinstance(contents, str) else json.dumps(contents))
    for name, text, _, _ in TABLES:
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "lines.jsonl").write_text('{"text": "A sentence. Another one."}\n')
    (folder / "lines.json").write_text('["A sentence."]\n')
    (folder / "typo.toml").write_text("microbatch=4\n")
    (folder / "pair.jsonl").write_text('{"step":1,"loss":2}\n')
    (folder / "torn.jsonl").write_text('{"step":1,"loss":2}\n{"step":2,"lo')  # of a run that was killed
    (folder / "wrong.csv").write_text("0F0,0X0\n1F0,1B0\n")
    (folder / "late.csv").write_text("0F0,0B0,0F1,0B1\n1F0,1B0,1F1\n")
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.csv")
    for at, (text, _, _) in enumerate(FILES):
        (folder / f"file{at}.toml").write_text(text, newline="")
    good = "\ufeffsteps = 2\r\nglobal-batch=4 # a comment\r\nmicro-batch=2\r\nheld-out=0\r\npreset='tiny'\r\nsequence-length=16\r\n"
    (folder / "good.toml").write_text(good, newline="")
    status, said = run(programs, "bert", [*BERT, "--metrics", "other.jsonl", "--save", "saved", "--export", "w"], folder)
    assert status == 0, said
    weights = (folder / "w" / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", weights[:8])[0]
    (folder / "nan.safetensors").write_bytes(weights[:begin] + struct.pack("<f", float("nan")) * ((len(weights) - begin) // 4))
    for program, options, wanted, sentence in TABLE:
        if program not in programs:
            continue
        status, said = run(programs, program, options, folder)
        last = said.splitlines()[-1] if said else ""
        if status != wanted or sentence not in (said if wanted in (0, 75) else last):
            yield f"{program} {' '.join(options)}: status {status}, said {said}"
        if wanted == 0 and "warning" in sentence and said.count("warning") != 1:
            yield f"{program} {' '.join(options)}: other warnings: {said}"


def streams(programs, folder):
    """Unwritable output is an error. A failed search changes no file. A program can start with closed streams, or without threads."""
    for program, options in ("compare", ["pair.jsonl", "pair.jsonl"]), ("goodput", ["--days", "1", "--ranks", "64"]), ("bert", ["--help"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([programs[program], *options], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
        if done.returncode == 0 or "cannot write all to standard output" not in done.stderr:
            yield f"{program} to a full disk: status {done.returncode}, said {done.stderr}"
    (folder / "kept.csv").write_text("before")
    search = ["--stages", "8", "--micro-batches", "8", "--memory", "3", "--seconds", "1e-9", "--csv"]
    for name in "kept.csv", "new.csv":
        status, said = run(programs, "schedules", [*search, name], folder)
        if status != 1 or "no schedule was found" not in said:
            yield f"a search that ends: status {status}, said {said}"
    if (folder / "kept.csv").read_text() != "before" or (folder / "new.csv").exists():
        yield "a schedule that was not found takes a file"
    line = '"$0" "$@" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", line, programs["bert"], *BERT, "--metrics", "closed.jsonl"], cwd=folder)
    steps = [json.loads(line).get("step") for line in (folder / "closed.jsonl").read_text().splitlines() if line.startswith("{")]
    if done.returncode != 0 or steps != [1, 2, 2] or not (folder / "closed.jsonl").read_text().startswith("{"):
        yield f"closed streams: status {done.returncode}, steps {steps}"
    for names, status in (["pair.jsonl", "pair.jsonl"], 0), (["pair.jsonl", "typo.toml"], 2):
        done = subprocess.run(["sh", "-c", line, programs["compare"], *names], cwd=folder)
        if done.returncode != status:
            yield f"compare {names} with closed streams: status {done.returncode}"
    line = 'ulimit -s 8000000; ulimit -v 4000000; exec "$0" "$@"'  # stacks of threads that find no room
    status, said = run({"sh": "sh"}, "sh", ["-c", line, programs["bert"], *BERT], folder)
    if status != 1 or "error: a thread cannot be started" not in said:
        yield f"without room for threads: status {status}, said {said}"


def bar(programs, folder):
    """The progress line of a step fits into the terminal."""
    for columns in (80, 40, 120):
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.Popen([programs["bert"], *BERT[2:], "--steps", "20000", "--stop-after", "3"], cwd=folder, stderr=end,
                                env={**os.environ, "TERM": "xterm"})
        os.close(end)
        said = b""
        try:
            while more := os.read(terminal, 4096):
                said += more
        except OSError:  # the program has ended
            pass
        os.close(terminal)
        shown = [re.sub("\x1b\\[[0-9]*[mK]", "", part) for part in re.split("[\r\n]+", said.decode())]
        steps = [part for part in shown if "step 3/20000" in part]
        if done.wait() != 75 or not steps or max(map(len, steps)) >= columns or (columns > 80 and "loss" not in steps[0]):
            yield f"{columns} columns: {steps}"
    terminal, end = pty.openpty()
    subprocess.run([programs["bert"], *BERT], cwd=folder, stderr=end, env={**os.environ, "TERM": "dumb"})
    os.close(end)
    if b"step 2/2" not in (said := os.read(terminal, 4096)) or b"\x1b" in said:
        yield f"a dumb terminal gets {said}"
    os.close(terminal)


def empty_values(programs, folder):
    """Every option of every program refuses an empty value, and so does DHP_STORE."""
    for program, path in programs.items():
        _, said = run(programs, program, ["--help"], folder)
        options = re.findall(r"(--[a-z0-9-]+) (?:TEXT|INT|UINT|FLOAT)", said)
        assert options or program == "onnx", said
        for option in options:
            status, said = run(programs, program, [option, ""], folder)
            if status not in (2, 64) or f"{option} is empty: is a shell variable unset?" not in said:
                yield f"{program} {option} '': status {status}, said {said}"
    status, said = run({"env": "/usr/bin/env"}, "env", ["DHP_STORE=", programs["bert"], *BERT], folder)
    if status != 2 or "DHP_STORE is empty" not in said:
        yield f"DHP_STORE= : status {status}, said {said}"


def configurations(programs, folder):
    """The options file of a checkpoint gives the same run again, and options on the command line override it."""
    def losses(name, options):
        status, said = run(programs, "bert", [*options, "--metrics", name, "--overwrite"], folder)
        assert status == 0, said
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    of_run = losses("run.jsonl", [*BERT, "--deterministic", "--lr", "0.02", "--save", "of-run"])
    options = "of-run/step-00000002/options.toml"
    text = (folder / options).read_text()
    assert "lr=0.02\n" in text and "deterministic=true\n" in text and "# warmup=0\n" in text, text
    if losses("again.jsonl", ["--config", options]) != of_run:
        yield "the options of a checkpoint give another run"
    losses("rates.jsonl", [*BERT[2:], "--lr", "1", "--lr-decay", "step", "--warmup", "1", "--steps", "8"])
    rates = [json.loads(line).get("lr") for line in (folder / "rates.jsonl").read_text().splitlines() if '"lr"' in line]
    if [round(rate, 9) for rate in rates] != [1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01]:
        yield f"--lr-decay step has the rates {rates}"
    broken = folder / "line\nlr=7"
    losses("broken.jsonl", [*BERT, "--deterministic", "--lr", "0.02", "--save", "broken", "--trace", str(broken)])
    broken.unlink()
    if losses("again.jsonl", ["--config", "broken/step-00000002/options.toml"]) != of_run or broken.exists():
        yield "options beside a path with a line break give another run"
    (folder / "two.csv").write_text("0F0,0F1,0B0,0B1\r\n1F0,1B0,,1F1,1B1\r\n")
    by_file = ["--deterministic", "--lr", "0.02", "--pipeline-parallel", "2", "--schedule", "two.csv"]
    if losses("csv.jsonl", [*BERT, *by_file]) != of_run:
        yield "a schedule that is a file gives another run"
    if "schedules" in programs:
        run(programs, "schedules", ["--stages", "2", "--micro-batches", "2", "--memory", "1", "--v", "--csv", "v.csv"], folder)
    in_a_v = ["--deterministic", "--lr", "0.02", "--pipeline-parallel", "2", "--schedule"]
    for name in ("zero-bubble-v", "dual-pipe-v", *(["v.csv"] if "schedules" in programs else [])):
        if losses(name + ".jsonl", [*BERT, *in_a_v, name]) != of_run:
            yield f"--schedule {name} gives another run"
    _, said = run(programs, "bert", ["--load", "of-run", "--steps", "3", "--seed", "7"], folder)
    if said.count("seed") != 1 or "warning: --seed 7; in the checkpoint: not given" not in said:
        yield f"a changed seed is not said once: {said}"
    if "onnx" in programs:
        _, said = run(programs, "onnx", ["of-run", "of-run.onnx"], folder)
        if not re.search(r" nodes, [1-9][0-9.]+ [kM]B of weights, ", said):
            yield f"the weights of a small model: {said}"
    changed = losses("changed.jsonl", ["--config", options, "--steps", "3"])
    if len(changed) != 3:
        yield f"the command line does not come first: {changed}"


def main():
    here = pathlib.Path(sys.argv[1]).resolve().parent
    programs = {"bert": "train_bert", "resnet": "train_resnet50", "score_bert": "score_bert", "score_resnet": "score_resnet50",
                "compare": "dhp_compare", "doctor": "dhp_doctor", "onnx": "export_onnx", "gpt": "train_gpt", "score_gpt": "score_gpt",
                "schedules": "dhp_schedules", "goodput": "dhp_goodput"}
    programs = {name: str(here / file) for name, file in programs.items() if (here / file).exists()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        wrong = [*mistakes(programs, folder), *streams(programs, folder), *bar(programs, folder), *empty_values(programs, folder), *configurations(programs, folder)]
    print(f"{len(TABLE)} mistakes and their sentences", *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
