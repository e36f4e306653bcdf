#!/usr/bin/env python3
"""plan.py DHP_PLAN TRAIN_BERT: tests the program dhp_plan, and a trainer that uses the layout that dhp_plan chooses."""

import json
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import ended  # noqa: E402

CLUSTERS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "plan" / "clusters"
H100, V100, LAPTOP, LAPTOPS = (CLUSTERS / f"{name}.toml" for name in ("h100x8", "v100x8", "laptop", "laptops"))
SMALL = {"bert": ["--preset", "tiny", "--sequence-length", "32"],
         "gpt": ["--preset", "tiny", "--sequence-length", "32", "--vocabulary-size", "512"],
         "resnet50": ["--depth", "14", "--width", "8", "--image-size", "32"]}
plan, train = sys.argv[1:]


def page_of(cluster, *options):
    return ended(plan, "--cluster", cluster, *options).stdout


def layouts(cluster, *options):
    """Returns the layouts that dhp_plan finds, from its JSON."""
    with tempfile.NamedTemporaryFile() as file:
        page_of(cluster, "--json", file.name, *options)
        return json.loads(pathlib.Path(file.name).read_text())


for model, options in SMALL.items():
    asked = [H100, "--gpus", "16", "--model", model, *options, "--global-batch", "32", "--zero", "1"]
    page, found = page_of(*asked), layouts(*asked)
    assert len(found) == 10 and "16 ranks, 32 samples" in page, (model, page)
    assert "from one host of 8 to 16 ranks" in page and "slower than 1 by" in page, page
    seconds = [each["seconds"] for each in found]
    assert seconds == sorted(seconds) and all(0 < each["utilization"] < 1 for each in found), found
    assert all(each["zero"] == 1 and abs(sum(each["parts"].values()) / each["seconds"] - 1) < 1e-6
               for each in found), found
    assert all(mesh[0] * mesh[1] * mesh[2] == 16 for mesh in (each["mesh"] for each in found)), found
# No layout is left out.
page = page_of(H100, "--gpus", "768", *SMALL["bert"], "--global-batch", "2304")
assert "the best of 99482 layouts" in page, page
# A lone host takes its part of the samples, not the inputs of all.
page = page_of(H100, "--gpus", "1000000", *SMALL["bert"], "--global-batch", "1000000", "--zero", "0", "--memory-limit",
               "0.2")
assert "from one host of 8 to 1000000 ranks" in page, page
for more, why in [(["--gpus", "12", "--global-batch", "32"], "as one host's part of the samples is not a whole number"),
                  (["--gpus", "24", "--global-batch", "24", "--pipeline-parallel", "3"],
                   "as no layout of one host fits the options and its memory")]:
    page = page_of(H100, *SMALL["bert"], *more)
    assert f"ranks: unknown, {why}" in page, page
# More ranks than a process can start as threads.
page = page_of(H100, *SMALL["bert"], "--data-parallel", "2048", "--global-batch", "2048")
assert " 1 2048x1x1 " in page, page
for cluster in CLUSTERS.glob("*.toml"):
    page_of(cluster, "--gpus", "2", "--preset", "tiny", "--global-batch", "4")
# The work of micro-batches of 12 is interpolated between two counted sizes: equally many samples are equal work.
work = []
for size in "8", "12":
    found = layouts(H100, "--gpus", "2", "--model", "resnet50", *SMALL["resnet50"], "--global-batch", "48",
                    "--micro-batch", size)[0]
    work.append(found["seconds"] * found["utilization"])
assert abs(work[1] / work[0] - 1) < 1e-9, work


def part_of_best(part, *asked, more):
    return [layouts(*asked, *options)[0]["parts"][part] for options in more]


# Attention to a part of the keys costs as much as its query-key pairs.
seconds = part_of_best("layers", H100, "--model", "gpt", "--preset", "tiny", "--sequence-length", "8192",
                       "--global-batch", "2", "--micro-batch", "1", "--recompute",
                       more=[["--gpus", ranks, "--context-parallel", ranks] for ranks in ("1", "2")])
assert 1.8 < seconds[0] / seconds[1] < 2.5, seconds
# Dropout in attention costs time, but less if cuDNN draws it.
seconds = part_of_best("layers", H100, "--gpus", "1", *SMALL["bert"], "--precision", "bf16", "--global-batch", "8",
                       more=([], ["--library-dropout"], ["--dropout", "0"]))
assert seconds[0] > seconds[1] > seconds[2], seconds
# Gradients of frozen layers are not sent.
seconds = part_of_best("data axis", LAPTOPS, *SMALL["bert"], "--data-parallel", "2", "--zero", "1", "--micro-batch",
                       "1", more=([], ["--freeze", "*layer*"], ["--lora", "query,value"]))
assert seconds[0] > 1.05 * seconds[1] > 5 * seconds[2], seconds
# Faster layouts that do not fit into memory do not hide a layout that does.
page_of(H100, "--gpus", "8", "--preset", "mini", "--precision", "bf16", "--global-batch", "64", "--top", "1",
        "--memory-limit", "0.06")
# Layouts are left out only if they do not fit: the rest is the same as without a limit.
asked = [H100, "--gpus", "4", "--model", "gpt", "--preset", "tiny", "--sequence-length", "64", "--precision", "bf16",
         "--global-batch", "16", "--top", "2000"]
found = layouts(*asked)
limit = sorted(each["memory_bytes"] for each in found)[len(found) // 5]
fitting = [each for each in found if each["memory_bytes"] <= limit]
assert len(layouts(*asked, "--memory-limit", limit / 1e9)) == len(fitting), (limit, len(fitting))
# A given axis keeps its size.
assert all(each["mesh"][0] == 2 for each in layouts(LAPTOP, "--gpus", "4", *SMALL["bert"], "--data-parallel", "2"))
# The price is that of an epoch of the data.
with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
    text.write("One sentence of a few words.\nAnother one follows it here.\n" * 300)
    text.flush()
    asked = [*SMALL["bert"], "--data", text.name]
    page, said = page_of(H100, "--gpus", "2", *asked), ended(train, *asked, "--steps", "0")
    trained = re.search(r"(\d+) training samples", said.stderr + said.stdout)[1]
    assert f"$: of {trained} samples;" in page, (trained, page)
# A plain reducer excludes ZeRO, and with --data the vocabulary is the trainer's.
for options, zero, published in [(["--reducer", "plain"], {0}, True),
                                 (["--data", "synthetic-resident"], {0, 1, 2, 3}, False)]:
    found = layouts(LAPTOP, "--gpus", "2", *SMALL["bert"], "--top", "500", *options)
    assert {each["zero"] for each in found} == zero, found
    held = min(max(each["stage_bytes"]) for each in found if each["mesh"] == [2, 1, 1] and each["zero"] == 0)
    assert (held > 4 * 4 * 128 * 30000) == published, held  # weights, gradients and AdamW's state of 30,522 words
with tempfile.TemporaryDirectory() as folder:
    # The time of ZeRO's exchange over a slow link is that of the bytes that a run sends.
    config, trace = pathlib.Path(folder) / "slow.toml", pathlib.Path(folder) / "trace.json"
    config.write_text(re.sub("(device_link.gb_per_s) = .*", r"\1 = 1e-6", LAPTOP.read_text()))
    for ranks in 2, 16:
        asked = [*SMALL["bert"], "--data", "synthetic-resident", "--data-parallel", ranks, "--zero", "1",
                 "--micro-batch", "1", "--bucket-mb", "0.25", "--global-batch", "16"]
        ended(train, *asked, "--steps", "1", "--held-out", "0", "--trace", trace, "--overwrite")
        summed = sum(call["args"]["bytes"] for call in json.loads(trace.read_text())["traceEvents"]
                     if call["name"] == "reduce_scatter" and call["pid"] == 0)
        planned = 1e3 * part_of_best("data axis", config, *asked, more=[["--recompute=false"]])[0]
        assert abs(planned / (2 * summed * (ranks - 1) / ranks) - 1) < 0.01, (ranks, planned, summed)
    # Options from a file are fixed.
    config, schedule = pathlib.Path(folder) / "options.toml", pathlib.Path(folder) / "1f1b.csv"
    for text, sizes in ("global-batch = 32\n", {1, 2, 4, 8, 16, 32}), ("global-batch = 32\n\tmicro-batch = 4\n", {4}):
        config.write_text(text)
        found = layouts(LAPTOP, *SMALL["bert"], "--config", config, "--top", "50")
        assert {each["micro_batch"] for each in found} == sizes
    # A schedule from a file, with two stages and two micro-batches.
    schedule.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    page = page_of(H100, "--gpus", "2", "--preset", "tiny", "--pipeline-parallel", "2", "--schedule", schedule,
                   "--global-batch", "4", "--micro-batch", "2")
    assert "1x1x2" in page, page
    wrong = "schedule .*1f1b.csv is for 2 stages, and the pipeline axis has 1; choose a pipeline axis of 2, or another"
    said = ended(plan, "--cluster", LAPTOP, "--gpus", "1", *SMALL["bert"], "--schedule", schedule, status=1).stderr
    assert re.search("cannot be divided by any of .* layouts of 1 rank: " + wrong, said), said
    said = ended(train, *SMALL["bert"], "--axes", "auto", "--schedule", schedule, status=1).stderr
    assert re.search("no layout of 1 rank can run this model: " + wrong, said), said
    # A wrong schedule is refused with the file's name, before anything runs.
    for text, stages, status, wrong in [
            ("0F0,0B0\n1F0,1B0,1F1,1B1\n", 2, 2, "1f1b.csv cannot run: schedule: stage 0 .*; mend the list of that"),
            ("0F0,0F1,0F2,0B0,0B1\n1F0,1B0,1F1,1B1,1F2,1B2\n", 2, 2, "without the backward of micro-batch 2"),
            ("", 2, 2, "--schedule .*1f1b.csv has no actions; write a line for each stage"),
            (" , \n\n", 2, 2, "has no actions"),
            ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 3, 1, "is for 2 stages, and the pipeline axis has 3"),
            ("0F0,0B0\n1F0,1B0\n", 2, 1, "is for 1 micro-batch, and a step has 2 on a replica; choose a larger")]:
        schedule.write_text(text)
        asked = ["--pipeline-parallel", stages, "--schedule", schedule, "--global-batch", "4", "--micro-batch", "2"]
        for program in [train], [plan, "--cluster", LAPTOP]:
            said = ended(*program, *SMALL["bert"], *asked, status=status)
            assert re.search(wrong, said.stderr) and "evaluation" not in said.stdout + said.stderr, said
    said = ended(plan, "--cluster", LAPTOP, *SMALL["bert"], "--gpus", "2", "--lora", "nothing", status=1).stderr
    assert re.search("layouts of 2 ranks: .*nothing", said), said
    said = ended(train, *SMALL["bert"], "--data-parallel", "2", "--axes", "auto", "--memory-limit", "0.001", "--cluster",
                 LAPTOP, status=1).stderr
    assert "no layout of 2 ranks fits this model and the memory of a laptop of 2 cores; give" in said, said
    config.write_text(LAPTOP.read_text())
    for cluster, wrong, status, words in [
            ("none.toml", [], 1, "none.toml"), (LAPTOP, ["--model", "vgg"], 2, "vgg"),
            (LAPTOP, ["--gpu", "4"], 2, "--gpu"),
            (LAPTOP, ["--gpus", "3", "--tensor-parallel", "2"], 1, "no layout of 3"),
            (LAPTOP, ["--gpus", "8", "--data-parallel", "4", "--tensor-parallel", "4"], 1, "no layout of 8"),
            (LAPTOP, ["--gpus", "2147483647"], 1, "--gpus 2147483647: at most a million can be planned"),
            (LAPTOP, ["--gpus", "4", "--tensor-parallel", "4"], 1, "be divided by any of 12 layouts of 4 ranks: "),
            (LAPTOP, ["--gpus", "97"], 1, "or a larger --global-batch than 32: each replica needs a sample"),
            (V100, ["--gpus", "2", "--precision", "bf16"], 1,
             "8 x V100, 100 Gb/s InfiniBand has no bf16: give --precision fp16 or fp32"),
            (config, ["--gpus", "2", "--json", config], 1, "is the file of --cluster; give another"),
            (H100, ["--gpus", "2", "--reducer", "top-k"], 1, "compressed and late gradients cannot be planned"),
            (H100, ["--gpus", "2", "--pipeline-parallel", "2", "--synthetic-gradients"], 1, "--synthetic-gradients cannot be planned"),
            (H100, ["--gpus", "2", "--tf32"], 1, "--tf32 cannot be planned"),
            (H100, ["--gpus", "2", "--offload", "optimizer"], 1, "--offload cannot be planned"),
            (LAPTOP, ["--gpus", "2", "--memory-limit", "0.001"], 1,
             "fits a laptop of 2 cores and --memory-limit: give more --gpus")]:
        said = ended(plan, "--preset", "tiny", "--cluster", cluster, *wrong, status=status).stderr
        assert words in said and len(said.splitlines()) == 1, (wrong, said)
said = ended(train, *SMALL["bert"], "--steps", "1", "--data-parallel", "4", "--axes", "auto", "--cluster", LAPTOP,
             "--evaluate-samples", "1").stderr
assert "axes: " in said and "by a laptop of 2 cores" in said, said
