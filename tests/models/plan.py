#!/usr/bin/env python3
"""plan.py DHP_PLAN TRAIN_BERT: dhp_plan as a program, and a trainer that takes the layout it chooses."""

import json
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import ended  # noqa: E402

CLUSTERS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "plan" / "clusters"
plan, train = sys.argv[1:]

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "plan.json"
    small = {"bert": ["--preset", "tiny", "--sequence-length", "32"],
             "gpt": ["--preset", "tiny", "--sequence-length", "32", "--vocabulary-size", "512"],
             "resnet50": ["--depth", "14", "--width", "8", "--image-size", "32"]}
    for model, options in small.items():
        asked = [plan, "--model", model, *options, "--cluster", CLUSTERS / "h100x8.toml", "--gpus", "16",
                 "--global-batch", "32", "--zero", "1", "--json", file]
        page = ended(*asked).stdout
        found = json.loads(file.read_text())
        assert len(found) == 10 and "16 ranks, 32 samples" in page, (model, page)
        assert "from one host of 8 to 16 ranks" in page and "slower than 1 by" in page, page
        seconds = [each["seconds"] for each in found]
        assert seconds == sorted(seconds) and all(0 < each["utilization"] < 1 for each in found), found
        assert all(each["zero"] == 1 and abs(sum(each["parts"].values()) / each["seconds"] - 1) < 1e-6
                   for each in found), found
        assert all(mesh[0] * mesh[1] * mesh[2] == 16 for mesh in (each["mesh"] for each in found)), found
    # No layout of as many as 100,000 is left out.
    page = ended(plan, *small["bert"], "--cluster", CLUSTERS / "h100x8.toml", "--gpus", "768", "--global-batch", "2304").stdout
    assert "the best of 99482 layouts" in page, page
    # More ranks than a process can start as threads.
    page = ended(plan, *small["bert"], "--cluster", CLUSTERS / "h100x8.toml", "--data-parallel", "2048", "--global-batch", "2048").stdout
    assert " 1 2048x1x1 " in page, page
    for cluster in CLUSTERS.glob("*.toml"):
        ended(plan, "--preset", "tiny", "--cluster", cluster, "--gpus", "2", "--global-batch", "4")
    # Micro-batches of 12 are not counted, but lie between two that are: as many samples are as much work.
    work = []
    for size in "8", "12":
        ended(plan, "--model", "resnet50", *small["resnet50"], "--gpus", "2", "--global-batch", "48", "--micro-batch", size,
              "--cluster", CLUSTERS / "h100x8.toml", "--json", file)
        found = json.loads(file.read_text())[0]
        work.append(found["seconds"] * found["utilization"])
    assert abs(work[1] / work[0] - 1) < 1e-9, work
    # A part of the keys costs what its pairs cost.
    seconds = []
    for context in "1", "2":
        ended(plan, "--model", "gpt", "--preset", "tiny", "--sequence-length", "8192", "--gpus", context, "--context-parallel",
              context, "--global-batch", "2", "--micro-batch", "1", "--cluster", CLUSTERS / "h100x8.toml", "--recompute",
              "--json", file)
        seconds.append(json.loads(file.read_text())[0]["parts"]["layers"])
    assert 1.8 < seconds[0] / seconds[1] < 2.5, seconds
    # Dropout in attention costs time, but where cuDNN draws it.
    seconds = []
    for more in [], ["--library-dropout"], ["--dropout", "0"]:
        ended(plan, *small["bert"], "--gpus", "1", "--precision", "bf16", "--cluster", CLUSTERS / "h100x8.toml",
              "--global-batch", "8", "--json", file, *more)
        seconds.append(json.loads(file.read_text())[0]["parts"]["layers"])
    assert seconds[0] > seconds[1] > seconds[2], seconds
    # Layouts that are faster and do not fit do not hide one that does.
    ended(plan, "--preset", "mini", "--precision", "bf16", "--cluster", CLUSTERS / "h100x8.toml", "--gpus", "8", "--global-batch", "64",
          "--top", "1", "--memory-limit", "0.06")
    # A given axis stays.
    ended(plan, *small["bert"], "--cluster", CLUSTERS / "laptop.toml", "--gpus", "4", "--data-parallel", "2", "--json", file)
    assert all(each["mesh"][0] == 2 for each in json.loads(file.read_text()))
    # ZeRO is for buckets, and --data has the trainer's vocabulary.
    for options, zero, published in (["--reducer", "plain"], {0}, True), (["--data", "synthetic-resident"], {0, 1, 2, 3}, False):
        ended(plan, *small["bert"], "--cluster", CLUSTERS / "laptop.toml", "--gpus", "2", "--top", "500", "--json", file, *options)
        found = json.loads(file.read_text())
        assert {each["zero"] for each in found} == zero, found
        held = min(max(each["stage_bytes"]) for each in found if each["mesh"] == [2, 1, 1] and each["zero"] == 0)
        assert (held > 4 * 4 * 128 * 30000) == published, held  # weights, gradients and AdamW's state of 30,522 words
    # Of frozen layers no gradients are sent.
    seconds = []
    for more in [], ["--freeze", "*layer*"], ["--lora", "query,value"]:
        ended(plan, *small["bert"], "--cluster", CLUSTERS / "laptops.toml", "--data-parallel", "2", "--zero", "1", "--micro-batch", "1",
              "--json", file, *more)
        seconds.append(json.loads(file.read_text())[0]["parts"]["data axis"])
    assert seconds[0] > 1.05 * seconds[1] > 5 * seconds[2], seconds
    # A file of options fixes what it has.
    config = pathlib.Path(folder) / "options.toml"
    for text, sizes in ("global-batch = 32\n", {1, 2, 4, 8, 16, 32}), ("global-batch = 32\n\tmicro-batch = 4\n", {4}):
        config.write_text(text)
        ended(plan, *small["bert"], "--config", config, "--cluster", CLUSTERS / "laptop.toml", "--top", "50", "--json", file)
        assert {each["micro_batch"] for each in json.loads(file.read_text())} == sizes
    # A schedule from a file, of two stages and two micro-batches.
    (pathlib.Path(folder) / "1f1b.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    page = ended(plan, "--preset", "tiny", "--cluster", CLUSTERS / "h100x8.toml", "--gpus", "2", "--pipeline-parallel", "2",
                 "--schedule", pathlib.Path(folder) / "1f1b.csv", "--global-batch", "4", "--micro-batch", "2").stdout
    assert "1x1x2" in page, page
    config.write_text((CLUSTERS / "laptop.toml").read_text())
    for wrong, status, words in [(["--cluster", "none.toml"], 1, "none.toml"), (["--model", "vgg"], 2, "vgg"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpu", "4"], 2, "--gpu"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "3", "--tensor-parallel", "2"], 1, "no layout of 3"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "8", "--data-parallel", "4", "--tensor-parallel",
                                   "4"], 1, "no layout of 8"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "2147483647"], 1,
                                  "--gpus 2147483647: at most a million can be planned"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "4", "--tensor-parallel", "4"], 1,
                                  "cannot be divided by any of 12 layouts of 4 ranks: "),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "97"], 1,
                                  "or a larger --global-batch than 32: each replica needs a sample"),
                                 (["--cluster", CLUSTERS / "v100x8.toml", "--gpus", "2", "--precision", "bf16"], 1,
                                  "8 x V100, 100 Gb/s InfiniBand has no bf16: give --precision fp16 or fp32"),
                                 (["--cluster", config, "--gpus", "2", "--json", config], 1, "is the file of --cluster; give another"),
                                 (["--cluster", CLUSTERS / "h100x8.toml", "--gpus", "2", "--reducer", "top-k"], 1,
                                  "--reducer: compressed and late gradients cannot be planned"),
                                 (["--cluster", CLUSTERS / "h100x8.toml", "--gpus", "2", "--offload", "optimizer"], 1,
                                  "--offload cannot be planned"),
                                 (["--cluster", CLUSTERS / "laptop.toml", "--gpus", "2", "--memory-limit", "0.001"], 1,
                                  "fits a laptop of 2 cores and --memory-limit: give more --gpus")]:
        said = ended(plan, "--preset", "tiny", *wrong, status=status).stderr
        assert words in said and len(said.splitlines()) == 1, (wrong, said)
    said = ended(train, "--preset", "tiny", "--sequence-length", "32", "--steps", "1", "--data-parallel", "4", "--axes", "auto",
                 "--cluster", CLUSTERS / "laptop.toml", "--evaluate-samples", "1").stderr
    assert "axes: " in said and "by a laptop of 2 cores" in said, said
