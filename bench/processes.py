"""Runs ranks as processes of this host, for zero.py and checkpoint.py."""
import os
import socket
import subprocess
import sys
import tempfile
import threading

limit_s = 900


def as_processes(count, command):
    """Runs one process for each rank; returns the output and the peak resident bytes of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(count):
            said = open(folder + "/%d" % rank, "w+")
            ranks.append((said, subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=dict(
                os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                MALLOC_MMAP_THRESHOLD_=str(1 << 20)))))  # glibc returns large freed blocks at once
        found = []
        too_long = threading.Timer(limit_s, lambda: [process.kill() for _, process in ranks])
        too_long.start()
        try:
            for said, process in ranks:
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                said.seek(0)
                found.append((said.read(), used.ru_maxrss * 1024))
                if process.returncode != 0:
                    sys.exit("%s ended with %d:\n%s" % (command, process.returncode, found[-1][0][-3000:]))
        finally:
            too_long.cancel()
            for said, process in ranks:
                if process.returncode is None:
                    process.kill()
                    process.wait()
                said.close()
    return found
