#!/usr/bin/env python3
"""damage.py TRAIN_BERT [--flips N]: any damage in a checkpoint is named before training begins, and the previous
checkpoint is loaded instead. A save that cannot be written gives an error, and keeps the earlier checkpoints."""

import argparse
import concurrent.futures
import os
import pathlib
import random
import resource
import shutil
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from programs import ended, losses  # noqa: E402

RUN = ["--vocabulary-size", "64", "--sequence-length", "16", "--samples", "64", "--global-batch", "16",
       "--micro-batch", "4", "--data-parallel", "2", "--zero", "2", "--held-out", "0", "--deterministic", "--lr-decay", "constant"]


class Trainer:
    def __init__(self, program):
        self.program = program

    def run(self, *options, **more):
        return ended(self.program, *RUN, *options, **more).stderr

    def fails(self, *options, says, **more):
        """The run must end with an error of one sentence that has all of `says`."""
        said = self.run("--steps", "3", *options, status=1, **more)
        last = said.splitlines()[-1]
        assert last.startswith("error: ") and all(text in last for text in says), (says, said)

    def goes_on(self, save, after, *warnings):
        """The run must continue after step `after` with exactly these warnings. Returns the third step's loss."""
        metrics = save.with_name(save.name + ".metrics")
        said = self.run("--load", save, "--steps", "3", "--metrics", metrics)
        assert f"loaded {save / f'step-{after:08}'}: goes on after step {after}\n" in said, said
        found = [line for line in said.splitlines() if line.startswith("warning: ") and "--steps" not in line]
        assert len(found) == len(warnings) and all(text in line for text, line in zip(warnings, found)), (warnings, said)
        last = losses(metrics)[-1]
        metrics.unlink()
        return last


def flip(path, at, bit):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def flips(trainer, save, seed, count, loss):
    """Flips one bit at a time in a random file of the newest checkpoint."""
    rng = random.Random(seed)
    newest = save / "step-00000002"
    files = sorted(newest.iterdir())
    for number in range(count):
        path = rng.choice(files)
        at, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        flip(path, at, bit)
        trainer.fails("--load", newest, says=[f"{newest} has no checkpoint to go on from, nothing in it is whole: ",
                                              f"{path} is damaged: "])
        if number % 20 == 0:
            assert trainer.goes_on(save, 1, f"{path} is damaged: ") == loss
        flip(path, at, bit)
    return count


def missing(trainer, save, loss):
    """Files that are cut off, missing or not regular; a file `latest` that names a missing checkpoint."""
    newest = save / "step-00000002"
    for path in sorted(newest.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
        assert trainer.goes_on(save, 1, f"{path}") == loss
        path.unlink()
        assert trainer.goes_on(save, 1, f"cannot open {path}: No such file or directory") == loss
        os.mkfifo(path)
        assert trainer.goes_on(save, 1, f"{path} is not a file") == loss
        path.unlink()
        path.write_bytes(whole)
    (newest / "index.json").rename(newest / "kept")
    (newest / "index.json").symlink_to("index.json")
    assert trainer.goes_on(save, 1, "index.json: Too many levels of symbolic links") == loss
    (newest / "kept").rename(newest / "index.json")
    (save / "latest").write_text("step-00000009\n")
    assert trainer.goes_on(save, 2, f"{save / 'latest'} names step-00000009, which is not there") == loss
    (save / "latest").write_bytes(b"step-00000001\r\n")  # line end of Windows
    assert trainer.goes_on(save, 1) == loss
    (save / "latest").write_text("step-00000002\n")


def unfit(trainer, save):
    trainer.fails("--load", save, "--optimizer", "lamb", says=["was saved with the optimizer adamw, this run has lamb"])
    trainer.fails("--load", save, "--preset", "mini", says=["--preset mini has 4 layers of 256, and the model in "])
    trainer.fails("--load", save / "nothing", says=[f"{save / 'nothing'} has no checkpoint to go on from"])


def unwritable(trainer, save, loss):
    """No space for a shard, simulated by a limit on the size of files; a folder that cannot be written."""
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))

    trainer.fails("--load", save, "--save", save, says=["cannot write ", "step-00000003.part/shard-", ": File too large"],
                  preexec_fn=small)
    metrics = save.parent / "metrics"
    metrics.write_text('{"step":1,"loss":1}\n' * 4999)  # room for 20 bytes
    trainer.fails("--metrics", metrics, "--load", save, says=[f"cannot write --metrics {metrics}: File too large"], preexec_fn=small)
    trainer.fails("--save", "/proc/sys", says=["cannot write to /proc/sys: "])
    trainer.fails("--save", "/proc/nowhere", says=["cannot make the directory /proc/nowhere: "])
    (save.parent / "link").symlink_to("nowhere")
    trainer.fails("--save", save.parent / "link", says=[f"cannot make the directory {save.parent / 'link'}: a link there leads nowhere; "])
    assert trainer.goes_on(save, 2, "step-00000003.part is a save that was not finished") == loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--flips", type=int, default=10)
    asked = parser.parse_args()
    trainer = Trainer(asked.program)
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(2) as pool:
        saves = [pathlib.Path(temporary) / name for name in ("a", "b")]
        trainer.run("--save", saves[0], "--save-every", "1", "--steps", "2")
        loss = trainer.goes_on(saves[0], 2)
        shutil.copytree(saves[0], saves[1])
        done = list(pool.map(lambda seed: flips(trainer, saves[seed], seed, asked.flips // 2, loss), (0, 1)))
        missing(trainer, saves[0], loss)
        unfit(trainer, saves[0])
        unwritable(trainer, saves[0], loss)
        assert trainer.goes_on(saves[0], 2, "step-00000003.part") == loss
    print(f"{sum(done)} flipped bits, and all else, found and named")


if __name__ == "__main__":
    main()
