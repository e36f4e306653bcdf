"""Simulated hosts: Linux namespaces, each with a name and addresses, connected to a bridge. The bridge is in the
namespace of this process, apart from the machine's network. The namespaces have no names outside, so they vanish with
their processes."""

import collections
import fcntl
import os
import secrets
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import ranks

INSIDE = "INSIDE_A_NETWORK_OF_ITS_OWN"
NAMES = ["first", "second", "third", "fourth", "fifth"]
NOBODY = "02:00:00:00:00:99"  # an Ethernet address that no host has
# Prefix of a command: kills its process when the thread that started it ends.
WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def enter():
    """Starts the program again in namespaces of its own. Exits with status 77 if that is not permitted."""
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


def name_hosts(own=None, inside=()):
    """Gives all hosts, or the host of prefix `inside`, the names of the hosts. The name `own` stands for 127.0.1.1."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("127.0.0.1 localhost\n")
        for number, name in enumerate(NAMES):
            at = "127.0.1.1" if name == own else address(number)
            file.write(f"{at} {name}\n{address(number, 6)} {name}-6\n")
        file.flush()
        os.chmod(file.name, 0o644)
        subprocess.run([*inside, "mount", "--bind", file.name, "/etc/hosts"], check=True)


def address(number, family=4):
    """The address of a host; the first host is number 0."""
    return f"10.77.0.{number + 1}" if family == 4 else f"fd77::{number + 1}"


def configure(lines, inside=()):
    """Runs lines of `ip -batch`, on the host of prefix `inside` or here."""
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


class Wire(threading.Thread):
    """Carries packets between hosts whose network cards are TUN devices, each with a delay."""

    def __init__(self, delay_s):
        super().__init__(daemon=True)
        self.delay_s = delay_s
        self.ends = {}  # TUN devices by host address
        self.done, self.stopped = os.pipe()

    def add(self, name, number):
        """Makes the card `name` of host `number`. The caller moves the card to the host."""
        tun, no_header = 1, 0x1000
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, 0x400454CA, struct.pack("16sH14x", name.encode(), tun | no_header))  # TUNSETIFF
        self.ends[bytes(map(int, address(number).split(".")))] = end

    def run(self):
        sources = [*self.ends.values(), self.done]
        under_way = collections.deque()  # (when it arrives, where, packet)
        while True:
            pause_s = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            for source in select.select(sources, [], [], pause_s)[0]:
                if source == self.done:
                    return
                try:
                    packet = os.read(source, 65536)
                except OSError:  # the host is gone
                    sources.remove(source)
                    continue
                to = self.ends.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                if to is not None:
                    under_way.append((time.monotonic() + self.delay_s, to, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, to, packet = under_way.popleft()
                try:
                    os.write(to, packet)
                except OSError:  # the packet is lost, which IP allows
                    pass

    def stop(self):
        os.write(self.stopped, b".")
        self.join()
        for end in [*self.ends.values(), self.done, self.stopped]:
            os.close(end)


class Network:
    """Four hosts, or five. Commands run on a host after prefix(number). delay_s: delay of every packet between hosts; a
    network with a delay has IPv4 only. own_loopback: each host's own name is 127.0.1.1 there, like in Debian."""

    made = 0

    def __init__(self, delay_s=0, own_loopback=False, count=4):
        Network.made += 1
        self.name = f"n{Network.made}"
        self.count = count
        self.hosts = []  # the process that keeps each host alive
        self.wire = Wire(delay_s) if delay_s else None
        self.own_loopback = own_loopback
        self.parted = False
        self.of_a_host = ["--net", "--uts"] + (["--mount"] if own_loopback else [])

    def __enter__(self):
        if not self.wire:
            configure([f"link add name {self.name} type bridge mcast_snooping 0", f"link set {self.name} up"])
        for number, name in enumerate(NAMES[:self.count]):
            stay = f"hostname {name} && echo ready && exec sleep infinity"
            host = subprocess.Popen([*WITH_US, "unshare", *self.of_a_host, "sh", "-c", stay], stdout=subprocess.PIPE,
                                    text=True)
            self.hosts.append(host)
            if host.stdout.readline() != "ready\n":
                raise AssertionError(f"the host {name} does not start")
            cable = f"{self.name}h{number}"
            if self.wire:
                self.wire.add(cable, number)
                configure([f"link set {cable} netns {host.pid} name eth0"])
                # Long packets, so that this process has to forward few.
                card = ["link set eth0 mtu 9000 up"]
            else:
                configure([f"link add name {cable} type veth peer name eth0 netns {host.pid}",
                           f"link set {cable} master {self.name} up"])
                card = [f"address add {address(number, 6)}/64 dev eth0 nodad", "link set eth0 up"]
            configure(["link set lo up", f"address add {address(number)}/24 dev eth0", *card], self.prefix(number))
            if self.own_loopback:
                subprocess.run([*self.prefix(number), "umount", "/etc/hosts"], check=True)  # enter() has mounted it
                name_hosts(name, self.prefix(number))
        if self.wire:
            self.wire.start()
        return self

    def __exit__(self, *error):
        if self.wire:
            self.wire.stop()
        for host in self.hosts:
            host.kill()
            host.wait()
            host.stdout.close()
        if not self.wire:
            configure([f"link del {self.name}"])
            if self.parted:
                configure([f"link del {self.name}b"])

    def prefix(self, number):
        """The prefix of a command that runs on this host, and is killed with this process."""
        return [*WITH_US, "nsenter", "--target", str(self.hosts[number].pid), *self.of_a_host]

    def run(self, command, limit_s):
        """Runs a job with a rank on each host to its end."""
        return ranks.run(self.count, command, limit_s, environment={"DHP_JOB_SECRET": secrets.token_hex(16)}, prefix=self.prefix,
                         master=address(0), port=29400)  # no other process is in this network

    def pull(self, number):
        """Pulls the cable of a host."""
        configure([f"link set {self.name}h{number} down"])

    def plug(self, number):
        """Plugs the cable of a host in again."""
        configure([f"link set {self.name}h{number} up"])

    def part(self, numbers):
        """Splits these hosts from the others. An empty list connects all hosts again."""
        if not self.parted:
            configure([f"link add name {self.name}b type bridge mcast_snooping 0", f"link set {self.name}b up"])
            self.parted = True
        configure([f"link set {self.name}h{number} master {self.name}{'b' if number in numbers else ''}"
                   for number in range(self.count)])

    def lose(self, number, others):
        """Loses all packets from a host to `others`. Their packets still arrive."""
        configure([f"neighbor replace {address(other)} lladdr {NOBODY} nud permanent dev eth0" for other in others],
                  self.prefix(number))

    def find(self, number, others):
        """Undoes lose()."""
        configure([f"neighbor del {address(other)} dev eth0" for other in others], self.prefix(number))

    def shield(self, number):
        """A firewall drops what comes to the host, but for the port of the store."""
        configure(["rule add pref 20 lookup local", "rule del pref 0",
                   "rule add pref 10 iif eth0 ipproto tcp sport 30000-65534 dport 30000-65534 blackhole"], self.prefix(number))

    def limit(self, megabits_per_s):
        """Limits the rate at which each host sends: at most a millisecond's worth at once. Drops no packets."""
        burst = max(16, megabits_per_s // 8)
        for number in range(len(self.hosts)):
            subprocess.run([*self.prefix(number), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                            f"{megabits_per_s}mbit", "burst", f"{burst}kb", "latency", "4s"], check=True)
