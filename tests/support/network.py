"""Servers in network namespaces of their own, which can be cut off from each other; only root may make them.

All of it is in a namespace of this process, which ``enter`` takes it into: outside of it, nothing is changed.
"""

import ctypes
import os
import subprocess
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_NETWORK: Final = "10.77.0"
HOSTS: Final = f"{_NETWORK}.0/24"
CLIENTS: Final = f"{_NETWORK}.1"
"""The address of those who use the servers."""


def enter() -> None:
    """Take this process, which has one thread, into a network namespace of its own; ``OSError`` where it may not."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace of its own")
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "refold", "type", "bridge")
    _ip("address", "add", f"{CLIENTS}/24", "dev", "refold")
    _ip("link", "set", "refold", "up")


class Network:
    """Hosts that are joined by a bridge, each a namespace of its own."""

    def __init__(self, count: int) -> None:
        self.hosts = [f"{_NETWORK}.{place + 2}" for place in range(count)]
        self._spaces = [_space(place, host) for place, host in enumerate(self.hosts)]

    def inside(self, place: int) -> list[str]:
        """Return how a command begins that runs at a host."""
        return _inside(self._spaces[place].pid)

    def cut(self, place: int, host: str) -> None:
        """Let nothing through from a host to another one; what comes from there still arrives."""
        _ip("route", "add", "blackhole", f"{host}/32", inside=self._spaces[place].pid)

    def cut_from_clients(self, place: int) -> None:
        """Let nothing through to a host from those who use its server."""
        _ip("route", "add", "blackhole", f"{self.hosts[place]}/32")

    def join(self) -> None:
        """Let everything through again."""
        for inside in (None, *(space.pid for space in self._spaces)):
            _ip("route", "flush", "type", "blackhole", inside=inside)

    def end(self) -> None:
        """Take the hosts away."""
        for space in self._spaces:
            space.kill()
            space.wait()


def _space(place: int, host: str) -> "subprocess.Popen[bytes]":
    """Return a process that holds a namespace which is joined to the bridge."""
    space = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
    assert space.stdout is not None
    assert space.stdout.read(1)  # It is there.
    space.stdout.close()
    _ip("link", "add", f"n{place}", "type", "veth", "peer", "name", "refold", "netns", str(space.pid))
    _ip("link", "set", f"n{place}", "master", "refold", "up")
    _ip("address", "add", f"{host}/24", "dev", "refold", inside=space.pid)
    for device in ("lo", "refold"):
        _ip("link", "set", device, "up", inside=space.pid)
    return space


def _inside(pid: int | None) -> list[str]:
    return [] if pid is None else ["nsenter", "--net", f"--target={pid}"]


def _ip(*arguments: str, inside: int | None = None) -> None:
    subprocess.run([*_inside(inside), "ip", *arguments], check=True, capture_output=True)


def is_possible() -> bool:
    """Return whether namespaces can be made here: by root on Linux, with util-linux and iproute2."""
    command = ["unshare", "--net", "ip", "link", "add", "refold", "type", "bridge"]
    try:
        return os.geteuid() == 0 and subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
