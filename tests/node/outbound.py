"""Counts what a test host and the processes of a `pulumi up` try to send to anybody else."""

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

OUTBOUND_CHAINS = "DISTTRAIN-"  # the chains' names begin so
GROUP = 54321  # nobody's: by it the kernel tells the packets of our `pulumi` from all others
ELSEWHERE = "198.51.100.1"  # for documentation: nowhere routed
TABLES = ("iptables", "ip6tables")


@dataclass(frozen=True)
class Outbound:
    """The counters. Everything that they count is refused, so that a try shows in the `up` too."""

    host: Host

    def on_host(self) -> int:
        """Packets of the host: whatever is no answer on a connection that came to it."""
        return sum(counted([*self._enter, table]) for table in TABLES)

    def of_pulumi(self) -> int:
        """Packets of the engine, its plugins and all that they start: whatever is not to the host.

        To the resolver on this machine too: it would ask others.
        """
        return sum(counted([table]) for table in TABLES)

    def try_both(self) -> None:
        """One connection from each side, which has to be seen."""
        call = f"curl --silent --max-time 5 http://{ELSEWHERE}/"
        assert self.host.try_shell(call).returncode
        assert subprocess.run([*as_group(), *shlex.split(call)], check=False).returncode

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.host.pid), "--net", "--"]


def as_group() -> list[str]:
    return ["setpriv", "--regid", str(GROUP), "--clear-groups", "--"]


def counted(table: list[str]) -> int:
    """Packets that the rules of our chain have refused."""
    lines = subprocess.run(
        [*table, "--list", chain(), "--verbose", "--numeric", "--exact"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines[2:] if " REJECT " in line)


def chain() -> str:
    return f"{OUTBOUND_CHAINS}{os.getpid()}"


@contextmanager
def watched(host: Host, stack: Stack, scratch: Path) -> Iterator[Outbound]:
    """Both counters at zero; the stack's `pulumi` runs in a group of its own meanwhile."""
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
    """A chain for what `match` says: loopback and `allowed` pass, after `refused`; nothing else.

    What IPv6 does by itself on every link (neighbours, multicast) is no connection: ICMPv6 passes.
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
    """As before; fine when a part of it was never made."""
    for words in (("-D", "OUTPUT", *match, "-j", chain()), ("-F", chain()), ("-X", chain())):
        subprocess.run([*table, *words], check=False, capture_output=True)


def run(table: list[str], *words: str) -> None:
    subprocess.run([*table, *words], check=True, capture_output=True)
