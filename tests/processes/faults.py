#!/usr/bin/env python3
"""faults.py VICTIM: one of four ranks misbehaves. Every other rank ends within the time limit + 2 s, with an error that
names that rank and a place in the source, even if that rank is 0, whose store all of them use. Four jobs run at a time,
because they mostly sleep. A late job is tried again, because the machine may be busy with other work."""

import concurrent.futures
import os
import signal
import sys

import ranks

LIMIT_S = 3
# Words of the other ranks' error: each must print one of the list.
SENTENCES = {
    "sleep": ["which is alive and in no call; its last one, barrier at misbehaving.hpp:"],
    "stop": ["has not been heard of for", "is gone ("],
    "kill": ["is gone"],
    "exit": ["is gone"],
    "throw": [": the disk is full"],
    "shape": ["calls all_reduce of 7 f32 (sum) at misbehaving.hpp:"],
    "order": ["calls barrier at misbehaving.hpp:"],
}


def check(program, what, who, tries=3):
    wrong = []
    with ranks.Job(4, [program, what, str(who), str(LIMIT_S)]) as job:
        others = job.wait(300, without=[who])
        last = max(end.seconds for end in others)
        # The time from the start counts: the rendezvous and the rounds before the fault take only milliseconds.
        for end in others:
            if end.status == 0:
                wrong.append(f"rank {end.rank} ended with status 0")
            named = f"rank {who}" in end.output
            place = "misbehaving.hpp:" in end.output or what == "throw"
            if not (named and place and any(text in end.output for text in SENTENCES[what])):
                wrong.append(f"rank {end.rank} wrote, with status {end.status}: {end.output.strip()}")
        # The faulty rank ends, too; a stopped one after SIGCONT.
        if what == "stop":
            os.kill(job.processes[who].pid, signal.SIGCONT)
        end = job.wait(300)[who]
        if end.status == 0 and what != "exit":
            wrong.append(f"the odd rank ended with status 0: {end.output.strip()}")
        if what == "throw" and f"error: rank {who}: the disk is full" not in end.output:
            wrong.append(f"the odd rank does not say who it is: {end.output.strip()}")
        example = others[0].output.strip()
    print(f"{what} of rank {who}, after {last:.1f} s: {example}", flush=True)
    if last > LIMIT_S + 2 + 1 and not wrong:
        return check(program, what, who, tries - 1) if tries > 1 else [f"{what} of rank {who}: ended after {last:.1f} s"]
    return [f"{what} of rank {who}: {text}" for text in wrong]


def main():
    faults = [(what, who) for what in SENTENCES for who in (0, 2)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = [text for texts in pool.map(lambda fault: check(sys.argv[1], *fault), faults) for text in texts]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
