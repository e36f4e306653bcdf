#!/usr/bin/env python3
"""text_cache.py TRAIN_BERT: runs with --text-cache have the losses of runs without: the run that makes it, one beside it, later ones,
and those after the text or the cache has changed; of plain text and of a column of a .jsonl file."""

import json
import pathlib
import subprocess
import sys
import tempfile

OPTIONS = ["--steps", "3", "--sequence-length", "32", "--deterministic", "--overwrite"]


def text(word):
    return "".join(f"The {word} number {n} sat down. It slept for {n} hours. Then it went home.\n\n" for n in range(300))


def start(folder, name, data, *options):
    words = [] if "--vocabulary-size" in options else ["--vocabulary-size", "80"]
    return subprocess.Popen([str(pathlib.Path(sys.argv[1]).resolve()), "--data", data, *OPTIONS, *words, *options, "--metrics",
                             name + ".jsonl"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(folder, name, process):
    """Losses, and what was said."""
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    losses = [(line.get("loss"), line.get("held_out_masked_loss")) for line in lines if "summary" not in line]
    assert len(losses) >= 3, lines
    return losses, said


def run(folder, name, data, *options):
    return finish(folder, name, start(folder, name, data, *options))


def main():
    cache = ["--text-cache", "deep/cache"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "a.txt").write_text(text("cat"))
        plain, _ = run(folder, "plain", "a.txt")
        together = [start(folder, name, "a.txt", *cache) for name in ("first", "beside")]
        for name, process in zip(("first", "beside"), together):
            losses, said = finish(folder, name, process)
            assert losses == plain and "warning" not in said, (losses, plain, said)
        made = sorted((folder / "deep" / "cache").glob("*.tokens"))
        assert len(made) == 1, made
        stamp = made[0].stat()
        assert run(folder, "later", "a.txt", *cache)[0] == plain
        assert made[0].stat().st_ino == stamp.st_ino  # it was read
        # Other rules and words are other tokens.
        words = run(folder, "words", "a.txt", *cache, "--vocabulary-size", "60")[0]
        assert words != plain and words == run(folder, "plain-words", "a.txt", "--vocabulary-size", "60")[0]
        # Damage.
        data = bytearray(made[0].read_bytes())
        data[len(data) // 2] ^= 1
        made[0].write_bytes(bytes(data))
        losses, said = run(folder, "damaged", "a.txt", *cache)
        assert losses == plain and "is damaged: its tokens have another checksum; it is made anew" in said, said
        # Another text of the same name and size.
        (folder / "a.txt").write_text(text("dog"))
        losses, said = run(folder, "changed", "a.txt", *cache)
        assert losses != plain and losses == run(folder, "plain-changed", "a.txt")[0] and "warning" not in said, said
        # No folder.
        (folder / "file").write_text("")
        losses_without, said = run(folder, "unwritable", "a.txt", "--text-cache", "file")
        assert losses_without == losses and said.count("warning: cannot make the directory file") == 1, said
        # A column.
        with open(folder / "b.jsonl", "w", encoding="utf-8") as file:
            for document in text("dog").split("\n\n")[:-1]:
                file.write(json.dumps({"id": 1, "body": document}) + "\n")
        for name in ("column", "column-again"):
            column, said = run(folder, name, "b.jsonl", "--text-column", "body", *cache)
            assert column == losses, (column, losses, said)
    print("the same losses with and without --text-cache")


if __name__ == "__main__":
    main()
