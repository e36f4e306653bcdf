"""The cost of losing a rank: an elastic job that continues, and jobs that restart from their newest checkpoint.

elastic.py TRAIN_BERT [--kills N] [--restarts N] [--every N,N] [--python PYTHON] [--preset NAME] [--layouts DxHxP,DxHxP]
[--json FILE]: BERT-tiny on four Gloo processes, of which one (never the first) is killed at random moments.

  elastic      train_bert --elastic 1:4; the killed process is replaced after each loss; --layouts: also with
               one process for each rank of these layouts, where a loss changes all axes
  started again   the same job without --elastic that saves after each N steps: when all its processes have ended, it is
                  started with --load at once
  torchrun     a model of the same size in PyTorch that saves as often (peer_elastic.py); torchrun restarts all
  torchft      the same model under torchft, which continues with the other replicas; the killed process is
               replaced. --torchft HEARTBEAT_MS: how long its lighthouse waits for a silent replica

The time counts from the kill to the end of the first step that had not been done before. It includes the steps that a
restarted job repeats after its newest checkpoint. PYTHON has PyTorch, and torchft for --torchft.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time

import results_file
from processes import ranks
from elastic_parts import PARTS, Steps, next_generation, parts_of

RANKS = 4
RUN = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--samples", "256", "--global-batch", "16",
       "--micro-batch", "2", "--held-out", "0", "--steps", "1000000", "--deterministic"]
PEER = str(pathlib.Path(__file__).resolve().parent / "peer_elastic.py")


def elastic(program, folder, kills, data=RANKS, tensor=1, pipeline=1):
    metrics, size = folder / "elastic.json", data * tensor * pipeline
    metrics.unlink(missing_ok=True)
    command = [program, *RUN, "--elastic", f"1:{data}", "--metrics", str(metrics)]
    if size > data:
        command += ["--elastic-axes", "all", "--tensor-parallel", str(tensor), "--pipeline-parallel", str(pipeline)]
    rows, number = [], 1
    with ranks.Job(size, command) as job:
        steps = Steps(metrics)
        steps.wait_for(20)
        alive = {rank: job.processes[rank] for rank in range(1, size)}
        for _ in range(kills):
            steps.wait_for(steps.now() + 10)
            time.sleep(random.uniform(0, 0.1))
            rank = random.choice(sorted(alive))
            begin = time.monotonic()
            alive[rank].kill()
            found, came = next_generation(job, number)
            steps.wait_for(found.after + 1)
            end = time.monotonic()
            rows.append(dict(total=end - begin, step=end - came, again=1 if found.repeats else 0, **parts_of(found, begin, came)))
            alive[rank] = job.add(rank)
            number = next_generation(job, found.number)[0].number
    return rows


def kill_steps(every):
    """Returns after(step), the step to kill at next: equally far from a checkpoint in all jobs of one interval."""
    places = random.Random(every)

    def after(step):
        return step + 20 + every + (places.randrange(every) - step - 20) % every
    return after


def row_of(total, done, losses):
    """Returns the row of one restart. done: steps before it; losses: those of the steps since then."""
    return dict(total=total, again=done + 1 - losses[0][0])


def restarted(program, folder, restarts, every):
    save = folder / f"save.{every}"
    command = [program, *RUN, "--data-parallel", str(RANKS), "--transport", "gloo", "--save", str(save), "--save-every", str(every),
               "--keep", "2"]
    rows, metrics, after = [], folder / f"restarted.{every}.0", kill_steps(every)
    job = ranks.Job(RANKS, [*command, "--metrics", str(metrics)])
    try:
        steps = Steps(metrics)
        for count in range(restarts):
            steps.wait_for(after(steps.now()), 120)
            time.sleep(random.uniform(0, 0.05))
            begin = time.monotonic()
            random.choice(job.processes[1:]).kill()
            job.wait(60 + begin - job.start)
            done = steps.now()
            job.__exit__()
            metrics = folder / f"restarted.{every}.{count + 1}"
            job = ranks.Job(RANKS, [*command, "--load", str(save), "--metrics", str(metrics)])
            before, steps = dict(steps.losses), Steps(metrics)
            steps.wait_for(done + 1, 120)
            rows.append(row_of(time.monotonic() - begin, done, steps.losses))
            rows[-1]["same"] = all(before.get(step, loss) == loss for step, loss in steps.losses)
    finally:
        job.__exit__()
    return rows


class Torchrun:
    """A torchrun job. This host has its only agent. Its end leaves no process or file behind."""

    def __init__(self, python, folder, every):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.steps = Steps(self.folder / "metrics")
        self.said = open(self.folder / "said", "w+")
        line = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(RANKS), "--max_restarts", "1000",
                "--monitor_interval", "0.1", PEER, str(self.steps.path), str(self.folder / "snapshot"), str(every)]
        # A shared store of the agent would give workers of a later round the addresses of earlier workers.
        self.agent = subprocess.Popen(line, stdout=self.said, stderr=self.said, start_new_session=True, env=dict(
            os.environ, OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"))

    def workers(self):
        """Returns the process ids of the workers; torchrun starts each in its own session."""
        return [int(child) for child in pathlib.Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text().split()]

    def wait_for(self, step):
        try:
            self.steps.wait_for(step, 120)
        except AssertionError as error:
            self.said.seek(0)
            raise AssertionError(f"{error}; torchrun said:\n{self.said.read()[-4000:]}") from None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        here = self.workers()
        os.killpg(self.agent.pid, signal.SIGKILL)
        self.agent.wait()
        for worker in here:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.said.close()


def by_torchrun(python, folder, restarts, every):
    """Returns rows, and the largest relative difference of a step's loss from that of an undisturbed run."""
    rows, after = [], kill_steps(every)
    with Torchrun(python, folder, every) as job:
        for _ in range(restarts):
            job.wait_for(after(job.steps.now()))
            time.sleep(random.uniform(0, 0.05))
            begin = time.monotonic()
            os.kill(random.choice(job.workers()[1:]), signal.SIGKILL)
            time.sleep(0.02)  # lets steps end that other workers had begun
            done, before = job.steps.now(), len(job.steps.losses)
            job.wait_for(done + 1)
            rows.append(row_of(time.monotonic() - begin, done, job.steps.losses[before:]))
        losses = job.steps.losses
    with Torchrun(python, folder, every) as steady:
        steady.wait_for(losses[-1][0])
        wanted = dict(steady.steps.losses)
    return rows, max(abs(loss / wanted[step] - 1) for step, loss in losses)


def by_torchft(python, folder, kills, heartbeat_ms):
    """Returns rows. torchft skips a lost replica's samples until it comes back, so its loss curve differs."""
    lighthouse = pathlib.Path(python).parent / "torchft_lighthouse"
    port, metrics = ranks.free_port(), folder / f"torchft.{heartbeat_ms}"
    line = [str(lighthouse), "--min_replicas", "1", "--quorum_tick_ms", "10", "--join_timeout_ms", "1000", "--heartbeat_timeout_ms",
            str(heartbeat_ms), "--bind", f"[::]:{port}"]
    rows = []
    with tempfile.TemporaryFile() as said:
        store = subprocess.Popen(line, stdout=said, stderr=said)
        try:
            command = [python, PEER, str(metrics), f"http://localhost:{port}"]
            with ranks.Job(RANKS, command, environment={"OMP_NUM_THREADS": "1"}) as job:
                steps = Steps(metrics)
                alive = {rank: job.processes[rank] for rank in range(1, RANKS)}
                for _ in range(kills):
                    whole = re.compile(r'"replicas": 4}\n$')
                    begin = time.monotonic()
                    while not (metrics.exists() and whole.search(metrics.read_text())):
                        assert time.monotonic() - begin < 90, "\n".join(job.output(at) for at in range(RANKS))[-4000:]
                        time.sleep(0.01)
                    steps.wait_for(steps.now() + 10, 60)
                    time.sleep(random.uniform(0, 0.05))
                    rank = random.choice(sorted(alive))
                    begin = time.monotonic()
                    alive[rank].kill()
                    time.sleep(0.01)
                    steps.wait_for(steps.now() + 1, 60)
                    rows.append(dict(total=time.monotonic() - begin))
                    alive[rank] = job.add(rank)
        finally:
            store.kill()
            store.wait()
    return rows


def seconds(rows):
    found = [row["total"] for row in rows]
    return statistics.median(found), min(found), max(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="train_bert")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--every", default="1,10,100", help="steps from checkpoint to checkpoint")
    parser.add_argument("--python", help="has PyTorch: torchrun is measured, too")
    parser.add_argument("--torchft", type=int, action="append", default=[], metavar="HEARTBEAT_MS")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--layouts", default="", help="such as 2x2x2,4x1x2: elastic jobs that change all axes")
    parser.add_argument("--json")
    asked = parser.parse_args()
    if asked.kills < 1 or asked.restarts < 1:
        parser.error("--kills and --restarts are 1 or more; --every '' leaves out jobs that start again")
    RUN[1] = asked.preset
    load = os.getloadavg()[0]
    found = {"elastic": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        half = asked.kills // 2
        found["elastic"] += elastic(asked.program, folder, half)
        for layout in filter(None, asked.layouts.split(",")):
            found[f"elastic, all axes, {layout}"] = elastic(asked.program, folder, asked.kills, *map(int, layout.split("x")))
        for every in map(int, filter(None, asked.every.split(","))):
            found[f"started again, a checkpoint each {every}"] = restarted(asked.program, folder, asked.restarts, every)
            if asked.python:
                rows, apart = by_torchrun(asked.python, folder, asked.restarts, every)
                found[f"torchrun, a checkpoint each {every}"] = rows
                print(f"torchrun, a checkpoint each {every}: a step's loss differs from the steady run's by {apart:.1e} at most")
        for heartbeat in asked.torchft:
            found[f"torchft, heartbeat {heartbeat} ms"] = by_torchft(asked.python, folder, asked.restarts, heartbeat)
        found["elastic"] += elastic(asked.program, folder, asked.kills - half)
    middle = seconds(found["elastic"])[0]
    print("from SIGKILL to the end of the next new step, median (least to most); load of the machine %.1f before, %.1f after" % (
        load, os.getloadavg()[0]))
    for name, rows in found.items():
        again = [row["again"] for row in rows if "again" in row]
        print("%-36s %3d kills  %7.3f s (%.3f to %.3f)  %5.1f x  %s" % (
            name, len(rows), *seconds(rows), seconds(rows)[0] / middle,
            f"steps done again: {statistics.median(again):g}" if again else "the samples of the lost replica are skipped"))
    for part in PARTS:
        print("  elastic, %-10s %.3f s" % (part, statistics.median(row[part] for row in found["elastic"])))
    same = [row["same"] for rows in found.values() for row in rows if "same" in row]
    if same:
        print("started again: %d of %d times all repeated steps had their first loss" % (sum(same), len(same)))
    if asked.json:
        results_file.save(asked.json, dict(load=[load, os.getloadavg()[0]], **found))


if __name__ == "__main__":
    main()
