"""Judges the evidence about how the ranks communicate. This module is pure."""

import re
from collections.abc import Mapping
from typing import Any

from cli.check import Result
from cli.status.platform_status import gpus_of
from cli.verify.evidence import Evidence, no_pod, result
from trainer.transport.asked import (
    AS_ASKED,
    NOT_ASKED,
    NOT_KNOWN,
    OTHER,
    STOPS,
    VARIABLE,
    as_asked,
    asked_of,
    line,
    way,
)
from trainer.transport.lines import read_transport

SMALL_SHARED_MEMORY_BYTES = 1 << 30
MIB = 1 << 20
_OF_NODE = re.compile(
    rf"\[node \d+\] (?:(?:{OTHER}|fatal: {STOPS})(?P<other>.*)|{NOT_KNOWN}(?P<unknown>.*)"
    rf"|(?:{AS_ASKED}|{NOT_ASKED})(?P<good>.*))"
)
HELP = "docs/monitoring.md#disttraintransportfallback"
_COLLECTIVES = re.compile(r"\bcollectives (nccl|gloo)\b")
DEBUG = "pulumi config set --path 'podEnvironment.NCCL_DEBUG' INFO, then pulumi up"


def shared_memory(seen: Evidence) -> Result:
    """Check whether /dev/shm has room for what the ranks of one pod exchange by NCCL."""
    sizes = [int(probe["shared_memory_bytes"]) for probe in seen.probes.values()]
    if not sizes:
        return no_pod(seen, "shared-memory")
    said = f"/dev/shm has {min(sizes) // MIB:,} MiB in each pod"
    several = any(gpus_of(pod) > 1 for pod in seen.pods)
    if several and min(sizes) < SMALL_SHARED_MEMORY_BYTES:
        return result("shared-memory", "warning", said, "pulumi config set shmSize 8Gi")
    return result("shared-memory", "ok", said)


def transport(seen: Evidence) -> Result:
    """Check the transport between the ranks.

    For NCCL, the lines of node 0 or NCCL's own lines in the log show it. With gloo only the network
    interface can be chosen.
    """
    if seen.world_size == 1:
        return result("transport", "not applicable", "the run has one rank")
    if not seen.log and not seen.probes:
        return no_pod(seen, "transport")
    said_by_node, named = _said_by_node(seen.log), _COLLECTIVES.search(seen.log)
    if named and named[1] == "gloo" and (said_by_node is None or said_by_node.status == "ok"):
        return _gloo(seen)  # it checks all pods, while the log is that of one pod
    if said_by_node:
        return said_by_node
    return _of_lines(seen, names_nccl=bool(named))


def _of_lines(seen: Evidence, *, names_nccl: bool) -> Result:
    """Judge NCCL's own lines in the log, if node 0 has written nothing about them.

    Args:
        seen: the evidence.
        names_nccl: whether the log that was read has the line that names the collectives.
    """
    found = read_transport(seen.log.splitlines())
    if found.ranks and found.ranks != seen.world_size:
        said = f"NCCL has joined {found.ranks} ranks, and the run has {seen.world_size}"
        return result("transport", "error", said, "./disttrain logs shows which rank is missing")
    joined = f"; {found.ranks} ranks joined" if found.ranks else ""
    environments = [probe["environment"] for probe in seen.probes.values()]
    asked = asked_of(str(environments[0].get(VARIABLE, "")) if environments else "")
    if as_asked(found, asked) is False:
        return result("transport", "error", line({0: found}, asked).removeprefix(OTHER), HELP)
    if found.networks or found.inside:
        return result("transport", "ok", f"{way([found])}{joined}")
    if found.ranks and len(seen.pods) == 1:
        return result("transport", "ok", f"no network inside one pod{joined}")
    silent = "NCCL has said nothing about its transport"
    said = silent if names_nccl else "the log does not reach so far"
    return result("transport", "not checked", f"{said}{joined}", DEBUG)


def _said_by_node(log: str) -> Result | None:
    """Return a result from node 0's last line about the transport; None if there is none.

    Node 0 writes such a line about the lines of its ranks.
    """
    told = [found for text in log.splitlines() if (found := _OF_NODE.match(text))]
    if not told:
        return None
    if told[-1]["other"]:
        return result("transport", "error", told[-1]["other"], HELP)
    if told[-1]["unknown"]:
        return result("transport", "not checked", told[-1]["unknown"], DEBUG)
    return result("transport", "ok", told[-1]["good"])


def _gloo(seen: Evidence) -> Result:
    faults, told = list[str](), set[str]()
    for name, probe in seen.probes.items():
        wanted = probe["environment"].get("GLOO_SOCKET_IFNAME", "")
        told.add(wanted or "the interface of the host's name")
        if wanted and wanted not in probe["interfaces"]:
            faults.append(f"{name} has no interface {wanted}: {', '.join(probe['interfaces'])}")
    if faults:
        fix = "set GLOO_SOCKET_IFNAME in podEnvironment"
        return result("transport", "error", "; ".join(faults), fix)
    if not told:
        return no_pod(seen, "transport")
    where = ", ".join(sorted(told)) if len(seen.pods) > 1 else "the pod's own loopback"
    return result("transport", "ok", f"gloo by TCP over {where}")


def all_reduce(seen: Evidence) -> Result:
    """Show the measured all-reduce.

    The sums were checked when they were measured, because a wrong sum ends the run.
    """
    if seen.world_size == 1:
        return result("all-reduce", "not applicable", "the run has one rank")
    if seen.volume_problem:
        return result("all-reduce", "not checked", seen.volume_problem)
    measured = seen.smoke_test
    if measured is None:
        said = "it was not measured; with `pulumi config set verify before` each start measures it"
        return result("all-reduce", "not applicable", said)
    ranks = measured["world_size"]
    rates = ", ".join(_rate(rate) for rate in measured["all_reduce"])
    said = f"the sums of {ranks} ranks by {measured['backend']} were right: {rates}"
    return result("all-reduce", "ok", said)


def _rate(rate: Mapping[str, Any]) -> str:
    size, bus = rate["size_bytes"], rate["bus_bytes_per_second"]
    shown = f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"
    return f"{shown} in {rate['seconds'] * 1e3:.3g} ms ({bus / 1e9:.3g} GB/s)"
