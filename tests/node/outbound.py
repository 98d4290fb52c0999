"""Counts the packets that a test host and a `pulumi up` try to send to any other machine."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.stack import Stack
from tests.node.host import Host

OUTBOUND_CHAINS = "DISTTRAIN-"  # the names of the chains begin with it
GROUP = 54321  # no user has it, so the kernel recognizes the packets of our `pulumi` by it
ELSEWHERE = "198.51.100.1"  # reserved for documentation, so nothing answers there
TABLES = ("iptables", "ip6tables")


@dataclass(frozen=True)
class Outbound:
    """Counters of packets. Each counted packet is also refused, so an `up` that sends one fails."""

    host: Host

    def on_host(self) -> int:
        """Return how many packets the host sent that do not answer a connection to it."""
        return sum(counted([*self._enter, table]) for table in TABLES)

    def of_pulumi(self) -> int:
        """Return how many packets the engine, its plugins and their children sent to others than
        the host.

        Packets to this machine's DNS resolver count too, because it would ask other machines.
        """
        return sum(counted([table]) for table in TABLES)

    def try_both(self) -> None:
        """Try one connection from the host and one from `pulumi`'s group, which must be counted."""
        call = f"curl --silent --max-time 5 http://{ELSEWHERE}/"
        assert self.host.try_shell(call).returncode
        assert subprocess.run([*as_group(), *shlex.split(call)], check=False).returncode

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.host.pid), "--net", "--"]


def as_group() -> list[str]:
    """Return the first words of a command line that runs in the group GROUP."""
    return ["setpriv", "--regid", str(GROUP), "--clear-groups", "--"]


def counted(table: list[str]) -> int:
    """Return how many packets the rules of our chain have refused."""
    lines = subprocess.run(
        [*table, "--list", chain(), "--verbose", "--numeric", "--exact"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines[2:] if " REJECT " in line)


def chain() -> str:
    """Return the name of the chain of this process."""
    return f"{OUTBOUND_CHAINS}{os.getpid()}"


@contextmanager
def watched(host: Host, stack: Stack, scratch: Path) -> Iterator[Outbound]:
    """Count from zero during the block. The stack's `pulumi` runs in the group GROUP meanwhile."""
    wrapper = scratch / "pulumi"
    real = shutil.which("pulumi", path=stack.environment["PATH"])
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(as_group())} {real} "$@"\n')
    wrapper.chmod(0o755)
    path = stack.environment["PATH"]
    stack.environment["PATH"] = f"{scratch}:{path}"
    outbound = Outbound(host)
    group = ("-m", "owner", "--gid-owner", str(GROUP))
    answers = [("-p", "tcp", "--sport", port) for port in ("22", "6443")]
    try:
        for table in TABLES:
            to_host = [("-d", host.address)] if table == "iptables" else []
            dns = [("-p", kind, "--dport", "53") for kind in ("udp", "tcp")]
            add(["nsenter", "--target", str(host.pid), "--net", "--", table], (), answers, [])
            add([table], group, to_host, dns)
        yield outbound
    finally:
        stack.environment["PATH"] = path
        for table in TABLES:
            remove(["nsenter", "--target", str(host.pid), "--net", "--", table], ())
            remove([table], group)


def add(
    table: list[str],
    match: tuple[str, ...],
    allowed: list[tuple[str, ...]],
    refused: list[tuple[str, ...]],
) -> None:
    """Make the chain for the packets that `match` selects.

    It first refuses `refused`, then lets loopback and `allowed` pass, and refuses everything else.
    ICMPv6 also passes: IPv6 sends it by itself on every link (neighbors, multicast).
    """
    rules = [(*rule, "-j", "REJECT") for rule in refused]
    rules += [(*rule, "-j", "RETURN") for rule in [("-o", "lo"), *allowed]]
    if "ip6tables" in table:
        rules.append(("-p", "icmpv6", "-j", "RETURN"))
    run(table, "-N", chain())
    for rule in [*rules, ("-j", "REJECT")]:
        run(table, "-A", chain(), *rule)
    run(table, "-I", "OUTPUT", *match, "-j", chain())


def remove(table: list[str], match: tuple[str, ...]) -> None:
    """Remove the chain; a part of it that was never made is no error."""
    for words in (("-D", "OUTPUT", *match, "-j", chain()), ("-F", chain()), ("-X", chain())):
        subprocess.run([*table, *words], check=False, capture_output=True)


def run(table: list[str], *words: str) -> None:
    subprocess.run([*table, *words], check=True, capture_output=True)
