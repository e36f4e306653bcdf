#!/usr/bin/env python3
"""elastic.py TRAIN_BERT TRAIN_RESNET50 LIAR [CASE...]: jobs lose ranks and take in others at random moments. In every
case, each step has the numbers of a steady run, and no step is in the metrics twice. As long as a living rank holds
every piece of the state, no finished step is repeated."""

import functools
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

import ranks
from generations import curve, first_difference, last_step, told

BERT = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--samples", "256", "--global-batch", "16",
        "--micro-batch", "2", "--deterministic", "--evaluate-samples", "4"]
MINI = [{"tiny": "mini"}.get(word, word) for word in BERT]
RESNET = ["--width", "8", "--image-size", "16", "--classes", "10", "--samples", "128", "--global-batch", "16", "--micro-batch",
          "2", "--deterministic", "--evaluate-samples", "4"]


@functools.cache
def steady(program, run, folder):
    """The numbers of an undisturbed run in one process."""
    path = pathlib.Path(folder) / f"steady-{abs(hash((program, run)))}"
    ranks.run(1, [program, *run, "--metrics", str(path)])
    return curve(path)


class Elastic(ranks.Job):
    """A job whose processes come and go."""

    def __init__(self, program, run, folder, processes, elastic, steps, more=(), by=None, **where):
        """more: options that change no number; by: another program for the job; where: options of ranks.Job."""
        self.steps, self.metrics = steps, folder / "metrics"
        run = (*run, "--steps", str(steps))
        self.wanted = steady(program, run, str(folder.parent))
        line = [by or program, *run, *more, "--elastic", elastic, "--metrics", str(self.metrics)]
        super().__init__(processes, line, **where)

    def step(self):
        return last_step(self.metrics)

    def wait_for_step(self, step):
        self.until(lambda: self.step() >= step, may_end=True)

    def end(self, without=(), limit_s=600, statuses=(0,)):
        assert all(end.status in statuses for end in self.wait(limit_s, without)), self.said()
        difference = first_difference(curve(self.metrics), self.wanted)
        assert not difference, f"{difference}\n{self.said()}"


def generations(said):
    """(number, replicas, step of the state) of each reported generation; step -1: no rank had a state."""
    return sorted((found.number, found.replicas, found.after) for found in told(said))


def lost_and_joined(program, run, folder, rng):
    """A rank is killed in the middle of a step, another one later; then two join, started with the same --resume."""
    save = ("--resume", str(folder / "save"), "--save-every", "5", "--keep", "2")
    with Elastic(program, run, folder, 4, "1:4", 150, save) as job:
        for victim, at in zip(rng.sample([1, 2, 3], 2), (8, 18)):
            job.wait_for_step(at)
            time.sleep(rng.uniform(0, 0.05))
            job.processes[victim].kill()
        job.wait_for_step(28)
        job.add(1)
        job.wait_for_step(36)
        job.add(2)
        job.end(without=list(job.poll()))
        sizes = [found[1] for found in generations(job.output(0))]
        assert sizes in ([3, 2, 3, 4], [3, 2, 4]), job.output(0)  # newcomers may be taken in together


def axes(program, run, folder, rng, tensor, pipeline):
    """A replica of two ranks loses one, and the spare rank takes its place. After another loss, one replica goes on."""
    axes = ("--tensor-parallel", str(tensor), "--pipeline-parallel", str(pipeline))
    with Elastic(program, (*run, *axes), folder, 5, "1:2", 60) as job:
        job.wait_for_step(8)
        job.processes[rng.choice([1, 2, 3])].kill()  # the spare takes the place
        job.wait_for_step(18)
        living = [at for at in (1, 2, 3, 4) if job.processes[at].poll() is None]
        job.processes[rng.choice(living)].kill()
        job.wait_for_step(30)
        killed = list(job.poll())
        assert len(killed) == 2, killed
        job.end(without=killed)
        assert [found[1] for found in generations(job.said())] == [2, 1], job.said()


def planned(program, run, folder, rng, departures=2):
    """A rank that is told to go leaves after its step, and another one joins. No generation ends within a step, and no
    step is repeated. Returns the reported generations."""
    with Elastic(program, run, folder, 4, "1:4", 60 * departures) as job:
        here = [1, 2, 3]
        for count in range(departures):
            job.wait_for_step(job.step() + 8)
            leaves = here.pop(rng.randrange(3))
            job.processes[leaves].send_signal(signal.SIGTERM)
            job.processes[leaves].wait(20)
            assert job.processes[leaves].returncode == 75, job.output(leaves)
            here.append(len(job.processes))
            job.add(1)
            while len(generations(job.output(0))) < 2 * count + 2:
                time.sleep(0.05)
        job.end(statuses=(0, 75))
        said = job.output(0)
        assert [found[1] for found in generations(said)] == [3, 4] * departures, said
        assert not [found for found in told(said) if found.why], said
        return told(said)


def sharded(program, run, folder, rng, stage):
    """A lost rank takes its ZeRO shares with it: the job goes on from the newest checkpoint."""
    save = ("--zero", str(stage), "--save", str(folder / "save"), "--save-every", "5", "--keep", "2")
    with Elastic(program, (*run, "--optimizer", "lamb"), folder, 3, "1:3", 40, save) as job:
        job.wait_for_step(13)
        job.processes[rng.choice([1, 2])].kill()
        job.wait_for_step(30)
        job.end(without=list(job.poll()))
        assert "the steps since the newest checkpoint are lost" in job.said(), job.said()


def copied(program, run, folder, rng, stage):
    """With copies of the shares, two ranks are lost one after the other, and no step is lost."""
    zero = ("--zero", str(stage), "--shard-redundancy", "1")
    with Elastic(program, (*run, "--optimizer", "lamb"), folder, 4, "1:4", 60, zero) as job:
        for at, victim in zip((8, 20), rng.sample([1, 2, 3], 2)):
            job.wait_for_step(at)
            time.sleep(rng.uniform(0, 0.05))
            job.processes[victim].kill()
        job.wait_for_step(35)
        job.end(without=list(job.poll()))
        assert [found[1] for found in generations(job.said())] == [3, 2], job.said()
        assert "is lost" not in job.said() and "copies of other replicas' shares" in job.said(), job.said()


def stopped(program, run, folder, rng):
    """Stopped ranks are left out. When they are woken, they come back as newcomers without their old state. A process
    that is refused for its other options does not prevent that."""
    with Elastic(program, (*run, "--pipeline-parallel", "2"), folder, 4, "1:2", 200, ("--comm-timeout", "2")) as job:
        job.wait_for_step(8)
        for rank in (1, 3):  # a replica
            job.processes[rank].send_signal(signal.SIGSTOP)
        job.wait_for_step(20)
        job.processes[3].send_signal(signal.SIGCONT)
        time.sleep(0.5)  # rank 3 comes back before rank 1
        job.command = [*job.command, "--lr", "0.5"]
        assert job.add(1).wait(60) == 1
        job.processes[1].send_signal(signal.SIGCONT)
        job.end(without=[4])
        assert "--lr" in job.output(4), job.output(4)
        first, *others, last = told(job.output(0))
        assert (first.replicas, last.replicas) == (1, 2) and all(found.replicas == 1 for found in others), job.said()
        # The step under way could not end without the stopped ranks, so it is repeated.
        assert (first.repeats, last.repeats) == (first.after + 1, 0), job.said()
        # The ranks that stay have the whole state; newcomers get a copy.
        assert first.megabytes == 0 and last.megabytes > 1, job.said()


def store_lost(program, run, folder, rng):
    """Without rank 0, which holds the store, the job ends with an error. No other job may write its metrics."""
    with Elastic(program, run, folder, 3, "1:3", 60) as job:
        job.wait_for_step(8)
        with Elastic(program, run, folder, 2, "1:2", 60) as other:
            other.wait(300)
            assert all(f"--metrics {job.metrics} is in use by another run" in other.output(rank) for rank in (0, 1)), other.said()
        job.processes[0].kill()
        for end in job.wait(300, without=[0]):
            assert end.status == 1 and "which holds it, ended" in end.output, end.output


def spare_store(program, run, folder, rng):
    """If the process with the store has become a spare and is told to stop, the others save first, and all end."""
    save = ("--pipeline-parallel", "2", "--save", str(folder / "save"))
    with Elastic(program, run, folder, 4, "1:2", 150, save) as job:
        job.wait_for_step(8)
        job.processes[1].kill()  # of its replica
        while len(generations(job.said())) < 1:
            time.sleep(0.05)
        job.processes[0].send_signal(signal.SIGTERM)
        assert all(end.status == 75 for end in job.wait(300, without=[1])), job.said()
        assert (folder / "save" / "latest").exists(), job.said()


def builds(program, run, folder, rng, slow):
    """A rank may take longer to build its training anew than a step may take."""
    with Elastic(program, run, folder, 3, "1:3", 40, by=slow,
                 environment=lambda rank: {"BUILDS_S": "33"} if rank == 1 else {}) as job:
        job.wait_for_step(8)
        job.processes[2].kill()
        job.end(without=[2], limit_s=150)
        assert [found[1] for found in generations(job.said())] == [2], job.said()


def few(program, run, folder, rng):
    """A job that waits for its minimum number of ranks saves its state if it is told to stop."""
    with Elastic(program, run, folder, 2, "2:2", 60, ("--save", str(folder / "save"))) as job:
        job.wait_for_step(8)
        job.processes[1].kill()
        job.processes[1].wait()
        time.sleep(0.5)
        job.processes[0].send_signal(signal.SIGTERM)
        assert job.processes[0].wait(300) == 75 and (folder / "save" / "latest").exists(), job.said()


def overwritten(program, run, folder, rng):
    """Another run's checkpoints never become the job's: it refuses them, also in its second generation. With --overwrite it
    begins anew if it loses its state before its first save."""
    save = ("--save", str(folder / "save"))
    ranks.run(1, [program, *run, *save, "--steps", "30"])
    line = [program, *run, *save, "--steps", "60", "--elastic", "1:2", "--lr"]
    with ranks.Job(2, lambda rank: [*line, f"0.{rank + 1}"]) as job:  # rank 1 differs, so it ends
        assert [end.status for end in job.wait(300)] == [1, 1], job.said()
        assert "has checkpoints of another run" in job.output(0), job.said()
    with Elastic(program, run, folder, 2, "1:2", 40, (*save, "--overwrite", "--zero", "1")) as job:
        job.wait_for_step(8)
        job.processes[1].kill()
        job.end(without=[1])


def part(program, run, folder, rng):
    """A job that is to stop after a step saves and ends there."""
    with Elastic(program, run, folder, 2, "1:2", 20, ("--stop-after", "5", "--save", str(folder / "save"))) as job:
        assert all(end.status == 75 for end in job.wait(300)) and not generations(job.said()), job.said()


def synchronized(program, run, folder, rng):
    """With synchronized batch norm all replicas need equally many micro-batches: of three ranks that are left, two train."""
    with Elastic(program, (*run, "--sync-batch-norm"), folder, 4, "1:4", 8) as job:
        job.wait_for_step(3)
        job.processes[2].kill()
        assert all(end.status == 0 for end in job.wait(300, without=[2])), job.said()
        assert [found[1] for found in generations(job.output(0))] == [2], job.said()


def twice(program, run, folder, rng):
    """A second rank is killed while the others connect."""
    with Elastic(program, run, folder, 4, "1:4", 40) as job:
        job.wait_for_step(8)
        job.processes[1].kill()
        time.sleep(rng.uniform(0.05, 0.2))
        job.processes[3].kill()
        job.end(without=[1, 3])
        assert generations(job.output(0))[-1][1] == 2, job.said()


def wrong(program, run, folder, rng, liar):
    """A flipped bit in a gradient is found before the update. Its rank is named, and the others repeat the step."""
    who = rng.choice([1, 2])
    with Elastic(program, run, folder, 3, "1:3", 30, ("--verify-every", "4"), by=liar,
                 environment=lambda rank: {"LIES_AT": "12"} if rank == who else {}) as job:
        job.end(without=[who])
        assert job.processes[who].wait(300) == 1
        for said in (job.output(who), job.output(0)):
            assert f"step 12: rank {who} has other gradients than other replicas have from the same samples" in said, said
        assert generations(job.output(0)) == [(2, 2, 11)], job.said()


def slow(program, run, folder, rng):
    """A rank that is stopped for most of the time is named."""
    with Elastic(program, run, folder, 3, "1:3", 120) as job:
        late = rng.choice([1, 2])
        while "is slow" not in job.output(0) and job.step() < 118:
            for signal_, seconds in ((signal.SIGSTOP, 0.06), (signal.SIGCONT, 0.02)):
                job.processes[late].send_signal(signal_)
                time.sleep(seconds)
        job.end()
        said = job.output(0)
        assert str(late) in re.findall(r"warning: rank (\d) \(.*is slow", said), said  # others may be slow, too


def run_cases(cases):
    """Runs each case(folder, random numbers) in a folder of its own."""
    seed = random.randrange(1 << 30)
    print("seed", seed, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name, case in cases.items():
            folder = pathlib.Path(temporary) / name.replace(" ", "-")
            folder.mkdir()
            begin = time.monotonic()
            case(folder, random.Random(f"{seed} {name}"))
            print(f"{name}: as it should, {time.monotonic() - begin:.1f} s", flush=True)


def main():
    bert, resnet, liar, *only = sys.argv[1:]
    cases = {"lost_and_joined": (lost_and_joined, bert, BERT), "resnet": (lost_and_joined, resnet, RESNET),
             "tensor": (functools.partial(axes, tensor=2, pipeline=1), bert, BERT),
             "pipeline": (functools.partial(axes, tensor=1, pipeline=2), bert, BERT),
             "planned": (planned, bert, BERT), "zero 1": (functools.partial(sharded, stage=1), bert, BERT),
             "copies 3": (functools.partial(copied, stage=3), bert, BERT), "stopped": (stopped, bert, BERT),
             "store": (store_lost, bert, BERT), "spare store": (spare_store, bert, BERT),
             "builds": (functools.partial(builds, slow=liar), bert, BERT), "few": (few, bert, BERT),
             "overwritten": (overwritten, bert, BERT), "part": (part, bert, BERT),
             "synchronized": (synchronized, resnet, RESNET), "twice": (twice, bert, BERT),
             "wrong": (functools.partial(wrong, liar=liar), bert, BERT), "slow": (slow, bert, BERT),
             "mini": (lost_and_joined, bert, MINI)}
    by_hand = {"mini"}  # takes longer
    run_cases({name: functools.partial(case, program, tuple(run)) for name, (case, program, run) in cases.items()
               if name in (only or cases.keys() - by_hand)})


if __name__ == "__main__":
    main()
