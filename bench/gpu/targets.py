"""The targets of dhp on an H200 or an H100 beside measurements: figures(parts, device) of a report."""

at_least, at_most = ">=", "<="
# Targets in samples/s for ResNet-50 and for BERT-large with 512 tokens. Batches fit into 80 GB, so they are the same on
# both GPUs. The H100's targets are lower in proportion to its ledger (docs/gpu.md), since its memory is slower.
asked_of = {"H200": (8000, 520), "H100": (6100, 445)}


def asked(what, sign, bound, value, shown="%.4g"):
    """Returns one line. value None: not measured. bound None: no target."""
    if value is None:
        verdict = "not measured"
    elif bound is None:
        verdict = "nothing is asked"
    else:
        verdict = "met" if (value >= bound if sign == at_least else value <= bound) else "NOT MET"
    return {"figure": what, "asked": "" if bound is None else "%s %s" % (sign, shown % bound), "value": value,
            "measured": "-" if value is None else shown % value, "verdict": verdict}


def row_of(parts, names, case, precision):
    """Returns the row of a case from the first of these parts that has it."""
    for name in names:
        for row in parts.get(name, {}).get("rows", []):
            if row["case"] == case and row["precision"] == precision and "failed" not in row:
                return row
    return {}


def of_tests(parts):
    tests = parts.get("tests", {})
    wrong = len(tests["tests_failed"]) + len(tests["tests_not_built"]) if "tests_failed" in tests else None
    if wrong == 0 and (tests.get("failed") or tests["passed"] == 0):
        wrong = 1  # the run was cut off
    yield asked("tests that fail, were not built or not reached", at_most, 0, wrong, "%d")
    starts = parts.get("nccl", {}).get("starts")
    yield asked("starts of several NCCL ranks that pass, of 5", at_least, 5,
                sum(line.startswith("passed: ") for line in starts) if starts else None, "%d")
    for part, what in (("ranks", "layouts of BERT whose losses differ"), ("recorded", "layouts of both models, recorded, whose losses differ"),
                       ("elastic", "elastic jobs whose losses differ when a rank is killed"),
                       ("features", "other things that ranks do whose losses differ"),
                       ("sanitize", "files that compute-sanitizer does not find clean")):
        rows = parts.get(part, {}).get("rows")
        yield asked(what, at_most, 0, rows and sum(row["result"] not in ("same", "numbers", "clean") for row in rows), "%d")


def of_training(parts, device):
    resnet, bert = next((figures for gpu, figures in asked_of.items() if gpu in device), asked_of["H200"])
    berts = [("BERT-%s, %d tokens" % (size, length)) for size in ("base", "large") for length in (128, 512)]
    cases = [("ResNet-50", precision) for precision in ("fp16", "bf16")] + [(name, "bf16") for name in berts]
    eager = ("resnet", "bert", "others")
    for case in cases:
        yield asked("%s, %s: dhp / eager PyTorch" % case, at_least, 1.0, row_of(parts, eager, *case).get("ratio"), "%.3f")
    compiled = [("ResNet-50", "fp16", 1.35), ("BERT-large, 512 tokens", "bf16", 1.15)]
    for case, precision, bound in compiled:
        yield asked("%s, %s: dhp / torch.compile(max-autotune)" % (case, precision), at_least, bound,
                    row_of(parts, ("compile_resnet", "compile_bert"), case, precision).get("ratio"), "%.3f")
    for case, precision, bound in (("ResNet-50", "fp16", resnet), ("ResNet-50", "bf16", resnet),
                                   ("BERT-large, 512 tokens", "bf16", bert)):
        yield asked("%s, %s: samples/s" % (case, precision), at_least, bound,
                    row_of(parts, (*eager, "resnet_steps", "bert_steps"), case, precision).get("dhp_samples_per_s"))
    for case in cases:
        row = row_of(parts, eager, *case)
        mine, peer = row.get("dhp_peak_memory_bytes"), row.get("peer_peak_memory_bytes")
        yield asked("%s, %s: peak memory, dhp / PyTorch" % case, at_most, None,
                    mine / peer if mine and peer else None, "%.2f")


def of_figures(parts):
    for part, what, sign, bound in (("packed", "packed / padded batches, tokens that count a second", at_least, 1.8),
                                    ("graphs", "steps recorded as CUDA graphs / others", at_least, None),
                                    ("overhead", "time of a step in a world of one NCCL rank / without", at_most, 1.01)):
        rows = [row for row in parts.get(part, {}).get("figures", []) if "ratio" in row]
        for row in rows:
            yield asked(row["figure"], sign, bound, row["ratio"], "%.3f")
        if not rows:
            yield asked(what, sign, bound, None, "%.3f")


def figures(parts, device=""):
    return [*of_tests(parts), *of_training(parts, device), *of_figures(parts)]
