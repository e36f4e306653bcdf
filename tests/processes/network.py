"""Hosts in a network of their own: namespaces of Linux, each with a name and addresses, wired to a bridge. The bridge
is in the namespace of this process, which shares nothing with the machine's network. All of it is gone when the
processes in it are, however they end: nothing has a name outside."""

import os
import shutil
import subprocess
import sys
import tempfile

INSIDE = "INSIDE_A_NETWORK_OF_ITS_OWN"
NAMES = ["first", "second", "third", "fourth"]
NOBODY = "02:00:00:00:00:99"  # an address of Ethernet that no host has
# A process ends when the thread that has started it does.
WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def enter():
    """Starts the program anew in namespaces of its own; ends it with status 77 where that is not permitted."""
    if INSIDE in os.environ:
        configure(["link set lo up"])
        name_hosts()
        return
    for tool in ("ip", "tc", "unshare", "nsenter", "setpriv", "hostname", "mount"):
        if not shutil.which(tool):
            print(f"skipped: there is no {tool} on this machine")
            sys.exit(77)
    unshare = ["unshare", "--net", "--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    probe = "unshare --uts --net true && ip link add name n type bridge && ip link add name v type veth peer name w"
    tried = subprocess.run([*unshare, "sh", "-c", probe], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        print("skipped: no network namespaces here:", " ".join(tried.stderr.split()))
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def name_hosts():
    """Lets all hosts know each other's names."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("127.0.0.1 localhost\n")
        for number, name in enumerate(NAMES):
            file.write(f"{address(number)} {name}\n{address(number, 6)} {name}-6\n")
        file.flush()
        os.chmod(file.name, 0o644)
        subprocess.run(["mount", "--bind", file.name, "/etc/hosts"], check=True)


def address(number, family=4):
    """Of a host, the first being number 0."""
    return f"10.77.0.{number + 1}" if family == 4 else f"fd77::{number + 1}"


def configure(lines, inside=()):
    """Lines for ip, run in a host or here."""
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


class Network:
    """Four hosts; their processes are started with prefix(number)."""

    made = 0

    def __init__(self):
        Network.made += 1
        self.name = f"n{Network.made}"
        self.hosts = []  # a process in each keeps it

    def __enter__(self):
        configure([f"link add name {self.name} type bridge mcast_snooping 0", f"link set {self.name} up"])
        for number, name in enumerate(NAMES):
            stay = f"hostname {name} && echo ready && exec sleep infinity"
            host = subprocess.Popen([*WITH_US, "unshare", "--net", "--uts", "sh", "-c", stay], stdout=subprocess.PIPE,
                                    text=True)
            self.hosts.append(host)
            if host.stdout.readline() != "ready\n":
                raise AssertionError(f"the host {name} does not start")
            cable = f"{self.name}h{number}"
            configure([f"link add name {cable} type veth peer name eth0 netns {host.pid}",
                       f"link set {cable} master {self.name} up"])
            configure(["link set lo up", f"address add {address(number)}/24 dev eth0",
                       f"address add {address(number, 6)}/64 dev eth0 nodad", "link set eth0 up"], self.prefix(number))
        return self

    def __exit__(self, *error):
        for host in self.hosts:
            host.kill()
            host.wait()
            host.stdout.close()
        configure([f"link del {self.name}"])

    def prefix(self, number):
        """Put before a command, it runs on that host, and not longer than this process."""
        return [*WITH_US, "nsenter", "--target", str(self.hosts[number].pid), "--net", "--uts"]

    def pull(self, number):
        """Pulls the cable of a host."""
        configure([f"link set {self.name}h{number} down"])

    def lose(self, number, others):
        """What the host sends to those others gets lost from now on; it goes on hearing them."""
        configure([f"neighbour replace {address(other)} lladdr {NOBODY} nud permanent dev eth0" for other in others],
                  self.prefix(number))

    def limit(self, megabits_per_s):
        """So much leaves each host from now on."""
        for number in range(len(self.hosts)):
            subprocess.run([*self.prefix(number), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                            f"{megabits_per_s}mbit", "burst", "128kb", "latency", "50ms"], check=True)
