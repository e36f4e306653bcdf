#!/usr/bin/env python3
"""elastic_hosts.py TRAIN_BERT [CASE...]: elastic jobs on hosts, which are network namespaces, with a store on the first
rank or in etcd. A host is cut off or lost, a member of etcd is killed, or the network splits. At most one part of the
job goes on, with a steady run's numbers. No step is in the metrics twice, and no generation is reported twice."""

import contextlib
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import elastic
import network

PORT = 29400  # no other process is in these networks
HOST_OF_ETCD = 4
STEPS = 500  # more than any job takes
RUN = ("--preset", "tiny", "--vocabulary-size", "64", "--sequence-length", "16", "--samples", "64", "--global-batch", "8",
       "--micro-batch", "2", "--deterministic", "--held-out", "0")


class Etcd:
    """A cluster of etcd, with all members on one host that has no ranks."""

    def __init__(self, hosts, folder, members):
        self.folder, self.prefix = folder, hosts.prefix(HOST_OF_ETCD)
        at = f"http://{network.address(HOST_OF_ETCD)}"
        self.urls = ",".join(f"{at}:{2379 + 10 * member}" for member in range(members))
        all_peers = ",".join(f"m{member}={at}:{2380 + 10 * member}" for member in range(members))
        self.members = []
        for member, url in enumerate(self.urls.split(",")):
            peer = f"{at}:{2380 + 10 * member}"
            line = ["etcd", "--name", f"m{member}", "--data-dir", str(folder / f"etcd{member}"), "--listen-client-urls", url,
                    "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                    "--initial-cluster", all_peers, "--log-outputs", str(folder / f"etcd{member}.log"), "--logger", "zap"]
            self.members.append(subprocess.Popen(self.prefix + line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                 stderr=subprocess.DEVNULL))

        # The cluster first elects a leader.
        ask = f'until curl --silent --max-time 1 {self.urls.split(",")[0]}/health | grep --quiet true; do sleep 0.1; done'
        subprocess.run(self.prefix + ["timeout", "300", "sh", "-c", ask], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for member in self.members:
            member.kill()
            member.wait()


class Job(elastic.Elastic):
    """A job of four processes, each on a host of its own. Its store is in etcd if `etcd` is given."""

    def __init__(self, program, folder, hosts, etcd=None, more=()):
        variables = {"DHP_STORE": etcd.urls} if etcd else {"DHP_JOB_SECRET": secrets.token_hex(16)}
        limit_s = "5" if etcd else "2"  # without its leader etcd takes up to 2 s to elect another
        super().__init__(program, RUN, folder, 4, "1:4", STEPS, ("--comm-timeout", limit_s, *more),
                         environment=variables, prefix=hosts.prefix, master=network.address(0), port=PORT)

    def wait_for_sizes(self, wanted):
        """Waits until the generations after the first have these numbers of replicas; each is reported once."""
        def are_so():
            found = elastic.generations(self.said())
            numbers = [number for number, _, _ in found]
            assert numbers == sorted(set(numbers)), self.said()
            sizes = [replicas for _, replicas, _ in found]
            assert sizes == wanted[:len(sizes)], self.said()
            return sizes == wanted

        begin = time.monotonic()
        self.until(are_so, may_end=True)
        return time.monotonic() - begin

    def stop(self, without=()):
        """Ends the job after a few more steps, and compares its curve with the steady run's. without: lost ranks."""
        self.wait_for_step(self.step() + 5)
        for number in set(range(len(self.processes))) - set(without):
            self.processes[number].terminate()
        ends = self.wait(600, without)
        assert all(end.status == 75 for end in ends), self.said()
        found = elastic.curve(self.metrics)
        assert found == self.wanted[:len(found)] and len(found) < self.steps, self.said()

    def check_store_lost(self, number, limit_s=300):
        """The process must end with an error because it cannot reach the store."""
        status = self.processes[number].wait(limit_s)
        assert status == 1 and re.search("error: .*(has lost|cannot reach) the (TCP store|etcd)", self.output(number)), (
            self.said())

    def take_back(self, numbers):
        """These ranks become members again. If one has given up, a new process takes its place. Ends the job."""
        ended = set()
        while elastic.generations(self.said())[-1][1] != 4:
            for number in set(numbers) - ended:
                if self.processes[number].poll() is not None:
                    self.check_store_lost(number)
                    self.add(number)
                    ended.add(number)
            assert time.monotonic() - self.start < 600, self.said()
            time.sleep(0.02)
        self.stop(without=ended)


@contextlib.contextmanager
def running(program, folder, members=0, more=(), step=10):
    """Four hosts, one more with `members` members of etcd if there are any, and a job that has reached `step`."""
    with network.Network(count=5 if members else 4) as hosts, contextlib.ExitStack() as stack:
        etcd = stack.enter_context(Etcd(hosts, folder, members)) if members else None
        job = stack.enter_context(Job(program, folder, hosts, etcd, more))
        job.wait_for_step(step)
        yield hosts, etcd, job


def cut_off(program, folder):
    """The fourth host is cut off for a while, and comes back as a newcomer."""
    save = ("--save", str(folder / "save"), "--save-every", "20", "--keep", "2")
    with running(program, folder, more=save) as (hosts, _, job):
        hosts.pull(3)
        took = job.wait_for_sizes([3])
        job.wait_for_step(job.step() + 20)
        assert not elastic.generations(job.output(3)), job.said()
        hosts.plug(3)
        job.take_back([3])
    return f"three go on after {took:.1f} s"


def unreached(program, folder):
    """A newcomer that reaches the store, but not the others, ends; they go on."""
    with running(program, folder) as (hosts, _, job):
        job.processes[3].kill()
        job.wait_for_sizes([3])
        hosts.shield(3)
        job.add(3)
        status = job.processes[4].wait(300)
        assert status == 1 and "cannot reach" in job.output(4) and "go on without this process" in job.output(4), job.said()
        job.wait_for_sizes([3, 3])
        job.stop(without=[3, 4])
    return "three go on"


def first_lost(program, folder):
    """The first host, whose rank watches, reports and saves, is lost for good. Later another process starts there."""
    with running(program, folder, 1) as (hosts, _, job):
        hosts.pull(0)
        job.processes[0].kill()
        took = job.wait_for_sizes([3])
        hosts.plug(0)
        job.wait_for_step(job.step() + 10)
        job.add(0)
        job.wait_for_sizes([3, 4])
        job.stop(without=[0])
    return f"three go on after {took:.1f} s"


def etcd_member_lost(program, folder):
    """The job does not notice that one of three members of etcd is killed. Then the rank started as 0 leaves as
    planned, and another rank is killed."""
    with running(program, folder, 3) as (_, etcd, job):
        etcd.members[0].kill()
        job.wait_for_step(60)
        job.wait_for_sizes([])
        job.processes[0].send_signal(signal.SIGTERM)
        job.wait_for_sizes([3])
        job.processes[2].kill()
        took = job.wait_for_sizes([3, 2])
        job.stop(without=[2])
    return f"a killed rank: two go on after {took:.1f} s"


def parted(program, folder):
    """The network splits into two and two hosts. Those with the first rank's store go on, and take the others back."""
    with running(program, folder) as (hosts, _, job):
        hosts.part([2, 3])
        took = job.wait_for_sizes([2])
        hosts.part([])
        job.take_back([2, 3])
    return f"two go on after {took:.1f} s"


def parted_from_etcd(program, folder):
    """The network splits in halves. The half that reaches etcd goes on, without the first rank; the other half ends."""
    with running(program, folder, 3) as (hosts, _, job):
        hosts.part([0, 1])
        begin = time.monotonic()
        took = job.wait_for_sizes([2])
        job.stop(without=[0, 1])
        time.sleep(max(0, begin + 8 - time.monotonic()))  # a lease lasts 5 s
        hosts.part([])
        for number in (0, 1):
            job.check_store_lost(number)
        job.wait_for_sizes([2])
    return f"two go on after {took:.1f} s"


def halves(program, folder):
    """Two halves do not reach each other, but all hosts reach etcd. No rank goes on until the network is whole."""
    with running(program, folder, 1) as (hosts, _, job):
        for number in range(4):
            hosts.lose(number, [2, 3] if number < 2 else [0, 1])
        step = job.step()
        job.until(lambda: job.said().count("does not connect") >= 4)
        assert job.step() <= step + 1, job.said()
        for number in range(4):
            hosts.find(number, [2, 3] if number < 2 else [0, 1])
        begin = time.monotonic()
        job.wait_for_step(step + 10)
        took = time.monotonic() - begin
        job.stop()
    return f"four go on {took:.1f} s after that"


def all_lost(program, folder):
    """All processes are killed. The same number starts again, and goes on from the newest checkpoint."""
    save = ("--save", str(folder / "save"), "--save-every", "10")
    with running(program, folder, 1, save, step=25) as (_, _, job):
        for process in job.processes:
            process.kill()
        for rank in range(4):
            job.add(rank)
        took = job.wait_for_sizes([4])
        assert elastic.generations(job.said()) == [(2, 4, -1)]
        job.stop(without=range(4))
    return f"four go on after {took:.1f} s"


def main():
    network.enter()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    program, *only = sys.argv[1:]
    start = time.monotonic()
    cases = [cut_off, parted, unreached]
    if shutil.which("etcd") and shutil.which("curl"):
        cases += [first_lost, etcd_member_lost, parted_from_etcd, halves, all_lost]
    else:
        print("skipped: what needs etcd and curl, which this machine has not (Debian: etcd-server, curl)", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for case in cases:
            if only and case.__name__ not in only:
                continue
            folder = pathlib.Path(temporary) / case.__name__
            folder.mkdir()
            begin = time.monotonic()
            found = case(program, folder)
            print(f"{case.__name__}: as it should, {time.monotonic() - begin:.1f} s; {found}", flush=True)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
