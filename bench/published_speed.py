#!/usr/bin/env python3
"""Compares dhp_plan's predictions with published figures: samples per second of BERT-large and ResNet-50.

published_speed.py DHP_PLAN [--save FILE]

Each point is data parallel, with the published global batch and micro-batch, and 16-bit products. MLPerf's BERT is
planned with the fastest stage of ZeRO, since its optimizer is sharded, but not padded as dhp's, which slows thousands
of GPUs down; and at 256 tokens, since its packed sentences have 254.5 on average. No figure of dhp_plan or of the
clusters' files has been fitted to a point. Writes a table, and the curve from 8 to 4096 GPUs."""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import processes  # noqa: F401
from programs import ended

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLUSTERS = ROOT / "examples" / "plan" / "clusters"
MLPERF = "MLPerf Training {}, closed, NVIDIA: "
LOGS = "median of the logs' throughput"
TIMES = "samples over run time, mean of the runs"
V2, V3, V4 = (MLPERF.format(version) for version in ("v2.0", "v3.0", "v4.0"))
EXAMPLES = "NVIDIA's DeepLearningExamples, "  # tables in its READMEs
# DGX2 has 16 V100 of 450 W in a host with 8 links of 100 Gb/s. FDR and ETHERNET are Azure's NC24rs_v3 and NC24s_v3: 4
# V100 on PCIe 3.0 with one link of InfiniBand FDR, 56 Gb/s, or of Ethernet, 24 Gb/s.
DGX2 = {"host.devices": 16, "host_link.gb_per_s": 6, "rack_link.gb_per_s": 6}
PCIE = {"host.devices": 4, "device_link.gb_per_s": 10}
FDR = {**PCIE, "host_link.gb_per_s": 1.6, "rack_link.gb_per_s": 1.6}
ETHERNET = {**PCIE, "host_link.gb_per_s": 0.65, "rack_link.gb_per_s": 0.65, "host_link.us": 30, "rack_link.us": 40}
# Model, tokens of a sample (0: images), cluster, changes to it, source, [(GPUs, global batch, micro-batch, samples/s)].
SERIES = [
    ("bert", 128, "v100x8", {}, EXAMPLES + "PyTorch BERT, 21.11", [(8, 32768, 64, 1746)]),
    ("bert", 512, "v100x8", {}, EXAMPLES + "PyTorch BERT, 21.11", [(8, 16384, 8, 586)]),
    ("bert", 128, "v100x8", DGX2, EXAMPLES + "TensorFlow 2 BERT, 21.02, DGX-2H",
     [(16, 61440, 60, 3528.5), (64, 61440, 60, 13370), (256, 61440, 60, 42697), (512, 61440, 60, 84223)]),
    ("bert", 128, "a100x8", {}, EXAMPLES + "PyTorch BERT, 21.11",
     [(8, 65536, 256, 4553), (64, 65536, 256, 35774), (256, 65536, 256, 138294)]),
    ("bert", 512, "a100x8", {}, EXAMPLES + "TensorFlow 2 BERT, 21.02",
     [(8, 30720, 40, 749.7), (64, 30720, 40, 5870.8), (256, 30720, 40, 22506)]),
    ("bert", 256, "a100x8", {}, V2 + TIMES,
     [(8, 448, 56, 2402), (64, 3072, 48, 18153), (1024, 4096, 4, 110241), (4096, 16384, 4, 442765)]),
    ("bert", 256, "h100x8", {}, V3 + LOGS + ", products of 8 bits",
     [(8, 768, 96, 7760), (64, 4608, 72, 53186), (512, 3072, 6, 138645), (768, 4608, 6, 190757)]),
    ("bert", 256, "h100x8", {}, V4 + LOGS + ", products of 8 bits", [(3472, 13888, 4, 793320)]),
    ("bert", 256, "h200x8", {}, V4 + LOGS + ", products of 8 bits", [(8, 768, 96, 7990)]),
    ("resnet50", 0, "v100x8", {}, EXAMPLES + "MXNet ResNet-50 v1.5, 20.12", [(8, 1536, 192, 10723)]),
    ("resnet50", 0, "v100x8", DGX2, EXAMPLES + "MXNet ResNet-50 v1.5, 20.12, DGX-2", [(16, 4096, 256, 21484)]),
    ("resnet50", 0, "a100x8", {}, EXAMPLES + "MXNet ResNet-50 v1.5, 22.10", [(8, 4096, 512, 26674)]),
    ("resnet50", 0, "a100x8", {}, V2 + LOGS,
     [(8, 3264, 408, 27185), (64, 3264, 51, 167596), (1024, 35840, 35, 2361523)]),
    ("resnet50", 0, "a100x8", {}, V2 + TIMES, [(4216, 67456, 16, 5742568)]),
    ("resnet50", 0, "h100x8", {}, V3 + LOGS,
     [(8, 3200, 400, 56071), (64, 3200, 50, 294666), (512, 20480, 40, 2255943), (768, 32256, 42, 3413943)]),
    ("resnet50", 0, "h100x8", {}, V4 + LOGS,
     [(8, 3200, 400, 57295), (2528, 40448, 16, 6885334), (3584, 57344, 16, 10103760)]),
    ("resnet50", 0, "h200x8", {}, V4 + LOGS, [(8, 3200, 400, 63599)]),
]


def predicted(program, model, tokens, cluster, changes, gpus, batch, micro_batch, zero):
    """Returns the predicted samples per second."""
    text = (CLUSTERS / f"{cluster}.toml").read_text()
    lines = [line for line in text.splitlines() if line.split(" = ")[0] not in changes]
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder) / "cluster.toml", pathlib.Path(folder) / "plan.json"
        file.write_text("\n".join(lines + [f"{key} = {value}" for key, value in changes.items()]) + "\n")
        of_model = ["--optimizer", "lars"]
        if model == "bert":
            of_model = ["--preset", "large", "--sequence-length", tokens, "--optimizer", "lamb",
                        "--library-dropout"]
        ended(program, "--model", model, *of_model, "--precision", "fp16", "--cluster", file, "--gpus", gpus,
              "--tensor-parallel", 1, "--pipeline-parallel", 1, *zero, "--recompute=false",
              "--global-batch", batch, "--micro-batch", micro_batch, "--top", 1, "--json", out)
        return json.loads(out.read_text())[0]["samples_per_s"]


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def table(program):
    rows, errors = [], []
    for model, tokens, cluster, changes, source, points in SERIES:
        zero = [] if model == "bert" and source.startswith("MLPerf") else ["--zero", 0]
        for at, (gpus, batch, micro_batch, published) in enumerate(points):
            found = predicted(program, model, tokens, cluster, changes, gpus, batch, micro_batch, zero)
            error = found / published - 1
            if at == 0:
                first = error
            errors.append((model, error, (1 + error) / (1 + first) - 1 if at > 0 else None))
            name = f"BERT-large, {tokens} tokens" if tokens else "ResNet-50"
            rows.append(row(name, cluster, gpus, batch, micro_batch, f"{published:,.0f}", f"{found:,.0f}",
                            f"{100 * error:+.0f} %", f"{100 * errors[-1][2]:+.0f} %" if at else "", source))
            print(rows[-1], flush=True)
    yield row("model", "cluster", "GPUs", "samples a step", "micro-batch", "published, samples/s", "predicted", "error",
              "of its growth", "published by")
    yield row(*["---"] * 10)
    yield from rows
    yield ""
    for model in "bert", "resnet50":
        sizes = [abs(error) for name, error, _ in errors if name == model]
        growth = [abs(error) for name, _, error in errors if name == model and error is not None]
        yield (f"{model}: {len(sizes)} points, median error {100 * statistics.median(sizes):.0f} %, at most "
               f"{100 * max(sizes):.0f} %; of growth within a series {100 * statistics.median(growth):.0f} %, at most "
               f"{100 * max(growth):.0f} %.\n")


def seeds(program):
    """Yields the rows of a claim in guides: 93 % efficiency with InfiniBand and 39 % without."""
    yield row("4 V100 a host, efficiency from one host", "hosts", "InfiniBand FDR", "Ethernet")
    yield row(*["---"] * 4)
    for name, model, tokens, micro_batch in (("BERT-large, 128 tokens, 32 a GPU", "bert", 128, 32),
                                             ("ResNet-50, 64 a GPU", "resnet50", 0, 64)):
        for hosts in 2, 8, 16:
            cells = []
            for changes in FDR, ETHERNET:
                one, many = (predicted(program, model, tokens, "v100x8", changes, gpus, gpus * micro_batch,
                                       micro_batch, ["--zero", 0]) for gpus in (4, 4 * hosts))
                cells.append(f"{100 * many / one / hosts:.0f} %")
            yield row(name, hosts, *cells)


def curve(program):
    clusters = "a100x8_ethernet", "a100x8", "h100x8"
    yield row("model, samples a GPU and step", "GPUs", *(f"{cluster}, samples/s" for cluster in clusters))
    yield row(*["---"] * 5)
    for name, model, tokens, micro_batch in (("BERT-large, 512 tokens, 32", "bert", 512, 32),
                                             ("ResNet-50, 128", "resnet50", 0, 128)):
        first = {}
        for gpus in (2 ** power for power in range(3, 13)):
            cells = []
            for cluster in clusters:
                found = predicted(program, model, tokens, cluster, {}, gpus, gpus * micro_batch, micro_batch,
                                  ["--zero", 1]) / gpus
                cells.append(f"{found * gpus:,.0f} ({100 * found / first.setdefault(cluster, found):.0f} %)")
            yield row(name, gpus, *cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--save", type=pathlib.Path, help="such as bench/results/published_speed.md")
    asked = parser.parse_args()
    text = ["# Predicted and published speed", "", "Made by `bench/published_speed.py`, which says how.", "",
            *table(asked.program), "## With InfiniBand and without", "", *seeds(asked.program), "",
            "## From 8 to 4096 GPUs, ZeRO 1", "", *curve(asked.program)]
    print("\n".join(text))
    if asked.save:
        asked.save.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    sys.exit(main())
