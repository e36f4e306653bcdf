"""Saves and loads of a sharded run: peak memory of each rank.

checkpoint.py TRAIN_BERT [--ranks N] [--preset NAME] [--json FILE]: trains two steps with --zero 3 on N processes over
Gloo, once without a save, once with a save after the first step, and once from that checkpoint. Compares what a save or
a load adds to a rank's peak resident memory with the size of the shard that the rank writes.
"""
import argparse
import pathlib
import tempfile

import results_file
from processes import as_processes


def peaks(arguments, *options):
    """Returns the peak resident bytes of each rank, in rank order."""
    line = [arguments.program, "--preset", arguments.preset, "--vocabulary-size", "30000", "--sequence-length", "32", "--samples",
            "64", "--global-batch", str(arguments.ranks), "--micro-batch", "1", "--held-out", "0", "--zero", "3", "--transport",
            "gloo", "--data-parallel", str(arguments.ranks), *options]
    return [peak for _, peak in as_processes(arguments.ranks, line)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="train_bert")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        save = pathlib.Path(temporary) / "save"
        plain = peaks(arguments, "--steps", "2")
        saving = peaks(arguments, "--steps", "2", "--save", str(save), "--save-every", "1")
        shards = [path.stat().st_size for path in sorted((save / "step-00000001").glob("shard-*"))]
        loading = peaks(arguments, "--steps", "2", "--load", str(save / "step-00000001"))
    print("%4s %12s %12s %12s %12s   %s" % ("rank", "pieces MB", "plain MB", "saving MB", "loading MB", "added / pieces"))
    rows = []
    for rank, (pieces, base, saved, loaded) in enumerate(zip(shards, plain, saving, loading)):
        rows.append({"rank": rank, "pieces": pieces, "plain": base, "saving": saved, "loading": loaded})
        print("%4d %12.1f %12.1f %12.1f %12.1f   %.2f, %.2f" % (rank, pieces / 1e6, base / 1e6, saved / 1e6, loaded / 1e6,
                                                                (saved - base) / pieces, (loaded - base) / pieces))
    if arguments.json:
        results_file.save(arguments.json, rows)


if __name__ == "__main__":
    main()
