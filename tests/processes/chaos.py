#!/usr/bin/env python3
"""chaos.py TRAIN_BERT [--seconds N] [--seed N] [--only LAYOUT]: elastic jobs under random events at random moments.
Processes are killed, stopped and woken, slowed down, told to leave, and added, some at the same time, and the disk of
the checkpoints is full for a while. Every job must end. Each step is in the metrics once, with the numbers of a steady
run. No files or processes are left behind, processes that stay do not grow, and the last checkpoint loads."""

import argparse
import collections
import contextlib
import dataclasses
import heapq
import itertools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import ranks
from generations import curve, first_difference, last_step, told

RUN = ["--preset", "tiny", "--vocabulary-size", "128", "--sequence-length", "16", "--samples", "96", "--global-batch", "12",
       "--micro-batch", "2", "--deterministic", "--evaluate-samples", "2", "--steps", "99999", "--threads", "1"]
TIMEOUT_S = 2  # time limit of the ranks' waits
HANG_S = 150  # limit of the time without a step, and of the time in which a process or a job ends when it is told to
LAYOUTS = {"data": [], "tensor": ["--tensor-parallel", "2"], "pipeline": ["--pipeline-parallel", "2"],
           "zero-1": ["--zero", "1", "--shard-redundancy", "1", "--optimizer", "lamb"],
           "zero-3": ["--zero", "3", "--shard-redundancy", "1", "--optimizer", "lamb"],
           "axes": ["--tensor-parallel", "2"]}
DISK = 24 << 20


def numbers_of(options):
    """The options that change the numbers of a run."""
    return [word for at, name in enumerate(options) if name == "--optimizer" for word in options[at:at + 2]]


class Steady:
    """Undisturbed runs in one process, by the options that change numbers."""

    def __init__(self, program, folder):
        self.program, self.folder, self.known, self.runs = program, folder, {}, itertools.count()

    def curve(self, options, steps):
        more = tuple(numbers_of(options))
        if len(self.known.get(more, [])) < steps:
            path = self.folder / f"steady-{next(self.runs)}"
            with ranks.Job(1, [self.program, *RUN, *more, "--metrics", str(path)]) as job:
                while last_step(path) < steps + 20:
                    assert not job.poll(), job.output(0)
                    time.sleep(0.02)
                job.processes[0].kill()
                job.processes[0].wait()
            self.known[more] = curve(path)
        return self.known[more][:steps]


@dataclasses.dataclass
class Member:
    """A process of the job, and the events that it has had."""

    at: int
    process: subprocess.Popen
    doomed: bool = False  # was killed, or told to leave
    stopped: bool = False
    for_long: bool = False  # was once stopped for long
    begun: float = dataclasses.field(default_factory=time.monotonic)
    told_at: float = 0.0  # when it was told to leave

    @property
    def living(self):
        return self.process.poll() is None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def go(self):
        """Tells the process to leave."""
        self.told_at = time.monotonic()
        self.signal(signal.SIGTERM)


class Chaos:
    """One job, from its start to its end."""

    def __init__(self, program, folder, layout, disk, rng, steady, total):
        self.program, self.folder, self.layout, self.rng, self.steady, self.total = program, folder, layout, rng, steady, total
        self.metrics, self.save, self.disk = folder / "metrics", folder / "save", disk
        self.temporary = folder / "tmp"
        for path in (folder, self.save, self.temporary):
            path.mkdir()
        if disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "chaos", str(self.save)], check=True)
        self.replica = 2 if layout in ("tensor", "pipeline") else 1
        self.options = [*LAYOUTS[layout], "--metrics", str(self.metrics), "--save", str(self.save), "--save-every", "7", "--keep",
                        "2", "--comm-timeout", str(TIMEOUT_S)]
        self.started = processes = rng.choice([4, 5])
        elastic = ["--elastic", "1:3", "--elastic-axes", "all"] if layout == "axes" else ["--elastic", f"1:{6 // self.replica}"]
        self.job = ranks.Job(processes, [program, *RUN, *self.options, *elastic],
                             # The allocator returns freed memory, so fragmentation does not look like growth.
                             environment={"TMPDIR": str(self.temporary), "MALLOC_MMAP_THRESHOLD_": "65536"})
        self.members = [Member(at, process) for at, process in enumerate(self.job.processes)]
        self.journal, self.due, self.count = [], [], itertools.count()
        self.longest_s, self.step, self.step_at, self.over = 0.0, 0, time.monotonic(), False

    # The journal and the checks.
    def note(self, what, text):
        self.total[what] += 1
        self.journal.append(f"{time.monotonic() - self.job.start:8.3f} s, after step {last_step(self.metrics)}: {what} {text}")

    def check(self, good, *what):
        if good:
            return
        text = " ".join(map(str, what))
        raise AssertionError(f"{self.layout}: {text}\n" + "\n".join(self.journal) + "\n" + self.job.said() + f"\n{self.layout}: {text}")

    def later(self, seconds, call):
        heapq.heappush(self.due, (time.monotonic() + seconds, next(self.count), call))

    def ready(self):
        """The members that may be lost now. Member 0 has the store."""
        return [member for member in self.members[1:] if member.living and not member.doomed and not member.stopped]

    # The events.
    def kill(self, member):
        member.doomed = True
        self.note("kill", member.at)
        member.signal(signal.SIGKILL)

    def leave(self, member):
        member.doomed = True
        self.note("leave", member.at)
        member.go()

    def stop(self, member, seconds):
        member.stopped = True
        member.for_long |= seconds > TIMEOUT_S / 2
        self.note("stop", f"{member.at} for {seconds:.2f} s")
        member.signal(signal.SIGSTOP)
        self.later(seconds, lambda: self.wake(member))

    def wake(self, member):
        member.stopped = False
        member.signal(signal.SIGCONT)

    def slow(self, member):
        self.note("slow", member.at)
        begin = 0.0
        for _ in range(self.rng.randrange(10, 30)):
            self.later(begin, lambda: member.stopped or member.signal(signal.SIGSTOP))
            begin += self.rng.uniform(0.01, 0.1)
            self.later(begin, lambda: member.stopped or member.signal(signal.SIGCONT))
            begin += self.rng.uniform(0.005, 0.05)

    def join(self, lives=False):
        at = len(self.members)
        member = Member(at, self.job.add(self.rng.randrange(1, self.started)))
        self.members.append(member)
        self.note("join", at)
        if not lives and self.rng.random() < 0.15:
            self.later(self.rng.uniform(0, 0.5), lambda: self.kill(member) if member.living else None)

    def fill_disk(self):
        if not self.disk or (self.save / "full").exists():
            return
        self.note("full disk", "")
        with contextlib.suppress(OSError), (self.save / "full").open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 16))
        self.later(self.rng.uniform(1, 4), lambda: (self.save / "full").unlink())

    def something(self):
        """Starts one random event."""
        ready, rng = self.ready(), self.rng
        living = sum(member.living and not member.doomed for member in self.members)
        if living > 6 or (living > 2 * self.replica and rng.random() < 0.5):
            if not ready:
                return
            one = rng.choice(ready)
            choice = rng.random()
            if choice < 0.4:
                self.kill(one)
            elif choice < 0.55:
                self.leave(one)
            elif choice < 0.7:
                self.stop(one, rng.uniform(TIMEOUT_S + 0.5, 3 * TIMEOUT_S))
            else:  # two at once, or nearly
                other = rng.choice(ready)
                happens = rng.choice([self.kill, self.leave, lambda member: self.stop(member, rng.uniform(0.1, 2 * TIMEOUT_S))])
                self.kill(one)
                self.later(rng.choice([0, rng.uniform(0, 0.3)]), lambda: other in self.ready() and happens(other))
            return
        choice = rng.random()
        if choice < 0.6 and living < 6:
            self.join()
        elif choice < 0.75:
            self.stop(rng.choice(ready), rng.uniform(0.05, 0.9 * TIMEOUT_S)) if ready else self.join()
        elif choice < 0.85:
            if ready:
                self.slow(rng.choice(ready))
        elif choice < 0.9:
            self.stop(self.members[0], rng.uniform(0.05, 0.4))
        else:
            self.fill_disk()

    def look(self):
        """Starts the events that are due, and checks that processes live and steps go on."""
        while self.due and self.due[0][0] <= time.monotonic():
            heapq.heappop(self.due)[2]()
        step, now = last_step(self.metrics), time.monotonic()
        # If one process leaves while others are lost, too few may be left: then all save, and end.
        self.over = self.members[0].process.poll() == 75
        if self.over:
            return
        for member in self.members:
            self.check(member.living or member.doomed or self.excused(member), f"process {member.at} has ended by itself")
            late = member.told_at and member.living and not member.stopped and now > member.told_at + HANG_S
            self.check(not late, f"process {member.at} has not left {HANG_S} s after it was told to")
        if step != self.step:
            self.longest_s = max(self.longest_s, now - self.step_at)
            self.step, self.step_at = step, now
        self.check(now - self.step_at < HANG_S, f"no step for {HANG_S} s after step", step)

    def excused(self, member):
        """Whether the process was stopped before it found the job, for longer than its search may take."""
        return member.for_long and "has found no store of job" in self.job.output(member.at)

    def quiet(self):
        """The descriptors, threads and memory of the process with the store, in a quiet time with four processes."""
        while self.due:
            self.wait(0.01)
        while len(self.ready()) > 3:
            self.kill(self.ready()[-1])
        while len(self.ready()) < 3:
            self.join(lives=True)
        begun, step = self.generation(), last_step(self.metrics)
        self.wait(3 * TIMEOUT_S + 5)  # abandoned connections have ended by then
        while last_step(self.metrics) < step + 5 and not self.over:
            self.wait(0.1)
        folder, found = pathlib.Path(f"/proc/{self.members[0].process.pid}"), []
        for _ in range(20):
            resident = int(re.search(r"VmRSS:\s+(\d+)", (folder / "status").read_text())[1])
            found.append((len(os.listdir(folder / "fd")), len(os.listdir(folder / "task")), resident))
            self.wait(0.05)
        least = tuple(map(min, zip(*found)))
        print(f"{self.layout}: quiet after generation {begun}: {least[0]} descriptors, {least[1]} threads, {least[2]} KiB", flush=True)
        return least

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.01)

    def generation(self):
        return max((each.number for each in told(self.job.said())), default=1)

    def run(self, seconds):
        end = time.monotonic() + seconds
        # Few ranks may hold some part of the state. If all of them are lost, the job needs a checkpoint.
        while last_step(self.metrics) < 3 or (self.layout != "data" and not (self.save / "latest").exists()):
            self.wait(0.02)
        early, looks_at_growth = None, seconds >= 60
        while time.monotonic() < end and not self.over:
            self.something()
            self.wait(self.rng.choice([self.rng.uniform(0, 0.2), self.rng.uniform(0.2, 2)]))
            if looks_at_growth and early is None and self.generation() >= 5:
                early = self.quiet()
        while self.due:  # wakes all processes, and frees the disk
            self.wait(0.01)
        if early and not self.over:
            late = self.quiet()
            allowed = (early[0] + 2, early[1] + 1, 1.1 * early[2])  # a leak would grow with every generation
            self.check(all(a <= b for a, b in zip(late, allowed)), "the process with the store has grown from", early, "to", late)
        self.end()

    def end(self):
        """Tells all processes to stop, and checks the whole run."""
        self.total["generations"] += self.generation()
        for member in self.members:
            if member.living and not member.doomed:
                member.go()
        begin = time.monotonic()
        while any(member.living for member in self.members):
            self.check(time.monotonic() - begin < HANG_S, f"has not ended {HANG_S} s after all were asked to")
            time.sleep(0.01)
        for member in self.members:
            if self.excused(member):
                continue
            allowed = [75, 0]
            if member.doomed:
                allowed.append(-signal.SIGKILL)
            if member.begun > member.told_at - 20:  # it may not have handled signals yet
                allowed.append(-signal.SIGTERM)
            self.check(member.process.returncode in allowed, f"process {member.at} has ended with {member.process.returncode}")
        steps = len(curve(self.metrics))
        self.total["steps"] += steps
        self.compare(steps)
        self.left_behind(steps)
        self.loads(steps)

    def compare(self, steps):
        self.check_curve(curve(self.metrics), self.steady.curve(self.options, steps), "all steps")

    def check_curve(self, found, wanted, what):
        difference = first_difference(found, wanted)
        self.check(not difference, what + ":", difference)

    def left_behind(self, steps):
        names = {path.name for path in self.save.iterdir()} - {".lock"}
        # The next save removes unfinished saves of killed ranks, but the job may have ended before one.
        if "stops before its first step" in self.job.said():
            names = {name for name in names if not name.endswith(".part")}
        self.check(f"step-{steps:08}" in names and "latest" in names and len(names) <= 3, "left in --save:", sorted(names))
        self.check((self.save / "latest").read_text().strip() == f"step-{steps:08}", "the last step is not the latest")
        self.check(not any("." in name for name in names), "left in --save:", sorted(names))
        self.check(not list(self.temporary.iterdir()), "left in TMPDIR:", list(self.temporary.iterdir()))
        job = f"DHP_JOB={self.job.variables['DHP_JOB']}".encode()
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                self.check(job not in path.read_bytes().split(b"\0"), f"{path.parent} still lives")

    def loads(self, steps):
        """The next steps after the last checkpoint are those of the steady run."""
        path = self.folder / "gone-on"
        more = LAYOUTS[self.layout] if self.replica == 2 else numbers_of(self.options)
        line = [self.program, *RUN, *more, "--load", str(self.save), "--metrics", str(path)]
        with ranks.Job(1, line) as job:
            begin = time.monotonic()
            while last_step(path) < steps + 3:
                self.check(not job.poll() and time.monotonic() - begin < HANG_S, "does not go on:", job.output(0))
                time.sleep(0.02)
            self.check(f"goes on after step {steps}" in job.output(0), job.output(0))
        found = curve(path, steps + 1)[:3]
        wanted = self.steady.curve(self.options, steps + 3)[-3:]
        self.check_curve(found, wanted, "after the last checkpoint")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for member in self.members:
            member.signal(signal.SIGCONT)
        self.job.__exit__(*error)
        if self.disk:
            subprocess.run(["umount", "-l", str(self.save)], check=False)


def in_own_mounts():
    """Starts this program again in a mount namespace of its own. Returns whether it can mount there."""
    if os.environ.get("CHAOS_MOUNTS"):
        return os.environ["CHAOS_MOUNTS"] == "yes"
    for flags in ("-m", "-rm"):
        probe = ["unshare", flags, "sh", "-c", "mount -t tmpfs -o size=1m chaos /mnt"]
        with contextlib.suppress(OSError):
            if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                os.environ["CHAOS_MOUNTS"] = "yes"
                os.execvp("unshare", ["unshare", flags, sys.executable, *sys.argv])
    print("no disk is full in this test: nothing may be mounted here", flush=True)
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", choices=LAYOUTS)
    asked = parser.parse_args()
    disk = in_own_mounts()
    print("seed", asked.seed, flush=True)
    rng = random.Random(asked.seed)
    total, longest_s, begin = collections.Counter(), 0.0, time.monotonic()
    order = [asked.only] if asked.only else rng.sample(sorted(LAYOUTS), len(LAYOUTS))
    jobs = max(1, min(len(order), round(asked.seconds / 10)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        steady = Steady(asked.program, folder)
        for layout in order[:jobs]:
            with Chaos(asked.program, folder / layout, layout, disk, rng, steady, total) as job:
                try:
                    job.run(asked.seconds / jobs)
                except (OSError, ValueError) as error:
                    job.check(False, repr(error))
                longest_s = max(longest_s, job.longest_s)
                print(f"{layout}: as it should, {job.generation()} generations, {job.step} steps, at most {job.longest_s:.1f} s "
                      "without one", flush=True)
    print(f"{time.monotonic() - begin:.0f} s, seed {asked.seed}: {dict(total)}, at most {longest_s:.1f} s without a step")


if __name__ == "__main__":
    main()
