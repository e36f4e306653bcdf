#!/usr/bin/env python3
"""elastic_hosts.py TRAIN_BERT [CASE...]: elastic jobs on hosts, which are network namespaces, with the store of the first rank
or in etcd. A host is cut off, the first one is lost, a member of etcd is killed, the network falls apart. One job goes on, with
the numbers of a steady run; no step is there twice, and no two jobs have a generation of the same number."""

import contextlib
import os
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
import ranks

PORT = 29400  # nobody else is in these networks
HOST_OF_ETCD = 4


class Etcd:
    """A cluster, all members of it on a host of their own."""

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

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for member in self.members:
            member.kill()
            member.wait()


class Job(elastic.Elastic):
    """A job of four processes, each on a host."""

    def __init__(self, program, folder, hosts, steps, etcd=None, more=()):
        store = {"DHP_STORE": etcd.urls} if etcd else {}
        secret = {"DHP_JOB_SECRET": secrets.token_hex(16)}
        super().__init__(program, tuple(elastic.BERT), folder, 4, "1:4", steps, ("--comm-timeout", "2", *more),
                         environment={**secret, **store}, prefix=hosts.prefix, master=network.address(0), port=PORT)

    def add(self, rank, hosts):
        """Starts a rank again, on its host."""
        process = self.job.add(rank)
        return process

    def sizes(self):
        """The replicas of each generation after the first. Nobody told of the same one."""
        found = elastic.generations(self.said())
        numbers = [number for number, _, _ in found]
        assert numbers == sorted(set(numbers)), self.said()
        return [replicas for _, replicas, _ in found]

    def seconds_to_step(self, begin, after):
        """Until another step is done, from `begin` on."""
        self.wait_for_step(after + 1)
        return time.monotonic() - begin

    def ended(self):
        return [at for at, process in enumerate(self.job.processes) if process.poll() is not None]


def cut_off(program, folder, stack):
    """The fourth host is cut off for a while: it comes back as a newcomer."""
    hosts = stack.enter_context(network.Network())
    with Job(program, folder, hosts, 400) as job:
        job.wait_for_step(10)
        begin, step = time.monotonic(), job.step()
        hosts.pull(3)
        at_most_one = job.step() + 1
        took = job.seconds_to_step(begin, at_most_one)
        time.sleep(1)
        hosts.plug(3)
        job.end()
        assert job.sizes() == [3, 4], job.said()
        print(f"  three go on after {took:.1f} s", flush=True)
