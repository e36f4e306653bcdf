"""Starts the ranks of a job as processes, with the variables of docs/launch.md, and waits for them with a deadline."""

import dataclasses
import os
import random
import secrets
import signal
import socket
import subprocess
import tempfile
import time


@dataclasses.dataclass
class Ended:
    """How one rank ended."""

    rank: int
    status: int  # subprocess's returncode: a negative one is a signal
    output: str  # stdout and stderr
    seconds: float  # from the start of the job to the rank's end


def free_port():
    """A port on which no process listens now, below the ports that the system assigns by itself. Another job's Gloo may
    get an assigned port, and would take a rank that looks for its store there for a peer. If the port is taken after
    all, the store tries the next ones."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Job:
    """N processes. Leaving the context kills those that still run."""

    def __init__(self, ranks, command, environment=None, prefix=lambda rank: [], master="127.0.0.1", port=None):
        """command: a list, or a function that makes one for a rank. environment: a dict, or such a function. prefix: a
        function that makes the words before the command for a rank."""
        self.command, self.environment, self.prefix = command, environment, prefix
        self.variables = dict(WORLD_SIZE=str(ranks), MASTER_ADDR=master, MASTER_PORT=str(port or free_port()),
                              DHP_JOB=secrets.token_hex(8))
        self.start = time.monotonic()
        self.ended = {}
        self.outputs = []
        self.processes = []
        for rank in range(ranks):
            self.add(rank)

    def add(self, rank):
        """Starts a process as this rank, and returns it."""
        variables = dict(os.environ)
        for name in list(variables):
            if name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "DHP_")):
                del variables[name]
        variables.update(self.variables, RANK=str(rank), LOCAL_RANK=str(rank))
        variables.update(self.environment(rank) if callable(self.environment) else self.environment or {})
        output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.outputs.append(output)
        line = self.command(rank) if callable(self.command) else self.command
        self.processes.append(subprocess.Popen(self.prefix(rank) + line, env=variables, stdin=subprocess.DEVNULL,
                                               stdout=output, stderr=subprocess.STDOUT))
        return self.processes[-1]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        for output in self.outputs:
            output.close()

    def poll(self):
        """The ranks that have ended so far."""
        for rank, process in enumerate(self.processes):
            if rank in self.ended or process.poll() is None:
                continue
            seconds = time.monotonic() - self.start
            self.ended[rank] = Ended(rank, process.returncode, self.output(rank), seconds)
        return self.ended

    def output(self, rank):
        """The output of a process so far."""
        self.outputs[rank].seek(0)
        return self.outputs[rank].read()

    def said(self):
        """The output of all processes so far."""
        return "\n".join(f"--- {rank}, status {process.poll()}\n{self.output(rank)}"
                         for rank, process in enumerate(self.processes))

    def until(self, ready, limit_s=300, may_end=False):
        """Waits until ready(). Raises all output after the limit or, unless may_end, when a rank ends."""
        begin = time.monotonic()
        while not ready():
            assert time.monotonic() - begin < limit_s and (may_end or not self.poll()), self.said()
            time.sleep(0.01)

    def wait(self, limit_s, without=()):
        """Waits until all ranks except `without` have ended, and returns their ends by rank. Raises after the limit."""
        wanted = set(range(len(self.processes))) - set(without)
        while not wanted <= set(self.poll()):
            if time.monotonic() - self.start > limit_s:
                late = sorted(wanted - set(self.ended))
                said = "\n".join(f"rank {rank}: {self.output(rank)}" for rank in late)
                raise AssertionError(f"after {limit_s} s ranks {late} have not ended; they wrote:\n{said}")
            time.sleep(0.005)
        return [self.ended[rank] for rank in sorted(wanted)]


def wait_for(job, text):
    """Waits until rank 0 has written `text`."""
    job.until(lambda: text in job.output(0))


def run(ranks, command, limit_s=600, **options):
    """Runs a job to its end. If a rank failed, raises an error with its output."""
    with Job(ranks, command, **options) as job:
        ends = job.wait(limit_s)
    failed = [f"rank {end.rank} ended with status {end.status}:\n{end.output}" for end in ends if end.status != 0]
    if failed:
        raise AssertionError("\n".join(failed))
    return ends
