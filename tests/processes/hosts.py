#!/usr/bin/env python3
"""hosts.py TRAIN_RESNET50 TRAIN_BERT: ranks on four hosts, which are network namespaces. They train to the same bits as
threads. If a host cannot be reached or heard any more, all ranks end within the time limit + 2 s, and the others name
it. A late job is tried again, because the machine may be busy with other work."""

import contextlib
import re
import secrets
import signal
import sys
import tempfile
import time

import layouts
import network
import ranks
from programs import axes, temporary_folder  # layouts has added its folder to the path

PORT = 29400  # no other process is in these networks
LIMIT_S = 5
BERT = ["--preset", "tiny", "--sequence-length", "16", "--vocabulary-size", "64", "--samples", "64", "--global-batch",
        "8", "--micro-batch", "2"]


def to_text(layout):
    return "x".join(map(str, layout))


def the_same_as_threads(programs, root):
    """Trains in three layouts, each with another form of rank 0's address."""
    first = network.address(0)
    secret = secrets.token_hex(16)
    runs = [  # model, layout, address of rank 0
        ("resnet", (2, 2, 1), first),
        ("bert", (4, 1, 1), network.address(0, 6)),
        ("bert", (2, 2, 2), "first"),
    ]
    wrong = []
    with network.Network() as hosts:
        for model, layout, master in runs:
            start = time.monotonic()
            per_host = layout[0] * layout[1] * layout[2] // 4
            name = f"{model} {to_text(layout)}, {per_host} a host, meeting at {master}"

            def environment(rank):
                return {"DHP_JOB_SECRET": secret, "LOCAL_RANK": str(rank % per_host)}

            threads = layouts.trained(programs[model], model, layout, "threads", root / f"{name} threads".replace("/", "_"))
            processes = layouts.trained(programs[model], model, layout, "gloo", root / f"{name} hosts".replace("/", "_"),
                                        environment=environment, prefix=lambda rank: hosts.prefix(rank // per_host),
                                        master=master, port=PORT)
            if processes != threads:
                wrong.append(f"{name}: hosts {processes[0]} are not threads {threads[0]}")
            print(f"{name}: {'the same' if processes == threads else 'not the same'}, after "
                  f"{time.monotonic() - start:.1f} s", flush=True)
    return wrong


def said(end):
    """The last error of a rank."""
    errors = [line for line in end.output.splitlines() if line.startswith("error: ")]
    return errors[-1] if errors else ""


def complaints(ends, expected, within_s):
    """expected(rank): a pattern of the rank's error. within_s: counted from the start of the job."""
    wrong = []
    for end in ends:
        if end.status == 0:
            wrong.append(f"rank {end.rank} ended with status 0")
        if end.seconds > within_s:
            wrong.append(f"rank {end.rank} ended {end.seconds - within_s:.1f} s too late")
        if not re.search(expected(end.rank), said(end)):
            wrong.append(f"rank {end.rank} ended with status {end.status} and wrote: {end.output.strip()[-2000:]}")
    return wrong


def met_by_own_names(programs):
    """The ranks meet at a name that is 127.0.1.1 on the host of rank 0, where others cannot reach it."""
    line = [programs["bert"], *BERT, *axes((2, 2, 2)), "--steps", "1", "--comm-timeout", "20"]
    wrong = []
    with network.Network(own_loopback=True) as hosts:
        secret = secrets.token_hex(16)
        with ranks.Job(8, line, lambda rank: {"DHP_JOB_SECRET": secret}, lambda rank: hosts.prefix(rank // 2),
                       network.NAMES[0], PORT) as job:
            ends = job.wait(300)
        wrong += [f"rank {end.rank}: {end.output}" for end in ends if end.status != 0]
        print(f"a name that is loopback on its own host: {ends[0].seconds:.1f} s", flush=True)
    return wrong


def behind_a_firewall(programs):
    """Ranks reach the store, but not each other; or the hosts do not share the folder of --save, which all say at once."""
    line = [programs["bert"], *BERT, *axes((3, 1, 1)), "--steps", "1", "--comm-timeout", "6"]
    secret, wrong = {"DHP_JOB_SECRET": secrets.token_hex(16)}, []
    with network.Network() as hosts, tempfile.TemporaryDirectory() as folder:
        own = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "own"]
        with ranks.Job(3, [*line, "--save", f"{folder}/out"], secret,
                       lambda rank: hosts.prefix(rank) + (own if rank == 2 else []), network.address(0), PORT) as job:
            wrong += complaints(job.wait(300), lambda rank: r"rank 2 \(host third\) does not see .*/out/.lock, which rank 0 "
                                r"\(host first\) does; choose a folder that all hosts share", 60)
            print(f"a folder of its own: {said(job.poll()[0])}", flush=True)
        hosts.shield(2)
        with ranks.Job(3, line, secret, hosts.prefix, network.address(0), PORT) as job:
            wrong += complaints(job.wait(300), lambda rank: r"rank \d \(host \w+\) cannot reach rank \d \(host \w+\) at 10.*: "
                                "Connection timed out; ranks need every port", 60)
            print(f"a firewall: {said(job.poll()[0])}", flush=True)
    return wrong


def when_training(job, metrics):
    """Waits until the job has trained a few steps."""
    job.until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= 4)


def fault(programs, name, cause, expected, root, tries=3):
    """Two jobs train while `cause` happens."""
    wrong = []
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(network.Network())
        jobs = []
        for number, layout in enumerate([(4, 1, 1), (1, 1, 4)]):
            metrics = root / f"{name} {number} {tries}"
            line = [programs["bert"], *BERT, *axes(layout), "--steps", "1000000", "--comm-timeout", str(LIMIT_S),
                    "--metrics", str(metrics)]
            job = ranks.Job(4, line, {"DHP_JOB_SECRET": secrets.token_hex(16)}, hosts.prefix, network.address(0),
                            PORT + 100 * number)
            jobs.append((f"{name}, {to_text(layout)}", metrics, stack.enter_context(job)))
        for _, metrics, job in jobs:
            when_training(job, metrics)
        cause(hosts)
        now = time.monotonic()
        for what, _, job in jobs:
            at_s = now - job.start
            ends = job.wait(at_s + 300)
            wrong += [f"{what}: {text}" for text in complaints(ends, expected, at_s + LIMIT_S + 2)]
            last_s = max(end.seconds for end in ends) - at_s
            print(f"{what}, after {last_s:.1f} s: {said(ends[1])}", flush=True)
    if wrong and tries > 1 and all(text.endswith("s too late") for text in wrong):
        return fault(programs, name, cause, expected, root, tries - 1)
    return wrong


def faults(programs, root):
    store_gone = f"rank 0, which watches over all in the TCP store at {re.escape(network.address(0))}:[0-9]+, is gone"
    silent = r"\(host {}, process [0-9]+\),? (which )?has not been heard of for"

    def fourth(rank):
        return store_gone if rank == 3 else "rank 3 " + silent.format("fourth")

    def first(rank):
        return silent.format("(second|third|fourth)") if rank == 0 else store_gone

    def second_to_third(rank):
        # All ranks are alive and wait in a circle, so any pair may be named.
        return r"rank [0-3] waits in .* for rank [0-3] \(host [a-z]+, process [0-9]+\), which is|rank [0-3] is in .* to which all its ranks have come"

    cases = [
        ("the fourth host is cut off", lambda hosts: hosts.pull(3), fourth),
        ("the first host is cut off", lambda hosts: hosts.pull(0), first),
        ("the fourth host is not heard", lambda hosts: hosts.lose(3, [0, 1, 2]), fourth),
        ("the second host is not heard by the third", lambda hosts: hosts.lose(1, [2]), second_to_third),
    ]
    return [text for name, cause, expected in cases for text in fault(programs, name, cause, expected, root)]


def main():
    network.enter()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    programs = {"resnet": sys.argv[1], "bert": sys.argv[2]}
    start = time.monotonic()
    with temporary_folder() as root:
        wrong = the_same_as_threads(programs, root) + met_by_own_names(programs)
        wrong += behind_a_firewall(programs) + faults(programs, root)
    print(f"{time.monotonic() - start:.0f} s")
    return "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(main() or 0)
