#!/usr/bin/env python3
"""starts.py VICTIM TRANSPORT...: eight processes ten times in a row, and two jobs at once that look for a port at the same place."""

import sys

import ranks


def main():
    program, *transports = sys.argv[1:]
    line = [program, "nothing", "0", "60"]
    port = ranks.free_port()
    for start in range(10):
        over = transports[start % len(transports)]
        seconds = max(end.seconds for end in ranks.run(8, [*line, over], port=port))
        print(f"start {start + 1} over {over}: {seconds:.2f} s", flush=True)
    line.append("sockets")
    with ranks.Job(8, line, port=port) as first, ranks.Job(8, line, port=port) as second:
        for job in (first, second):
            for end in job.wait(120):
                assert end.status == 0, f"rank {end.rank}: {end.output}"
    print("two jobs at once")


if __name__ == "__main__":
    main()
