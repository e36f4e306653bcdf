#!/usr/bin/env python3
"""starts.py VICTIM: eight processes ten times in a row, and two jobs at once that look for a port at the same place."""

import sys

import ranks


def main():
    line = [sys.argv[1], "nothing", "0", "60"]
    port = ranks.free_port()
    for start in range(10):
        seconds = max(end.seconds for end in ranks.run(8, line, port=port))
        print(f"start {start + 1}: {seconds:.2f} s", flush=True)
    with ranks.Job(8, line, port=port) as first, ranks.Job(8, line, port=port) as second:
        for job in (first, second):
            for end in job.wait(120):
                assert end.status == 0, f"rank {end.rank}: {end.output}"
    print("two jobs at once")


if __name__ == "__main__":
    main()
