"""What the evidence means for how the ranks reach each other. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from cli.check import Result
from cli.status.judge import gpus_of
from cli.verify.evidence import Evidence, no_pod, result

SMALL_SHARED_MEMORY_BYTES = 1 << 30
MIB = 1 << 20
_NET = re.compile(r"\b(?:via )?NET/(IB|OFI|Socket|[A-Za-z]+)(?:/\d+)?(/GDRDMA)?")
_RANKS = re.compile(r"\bnranks (\d+).*Init COMPLETE")
_COLLECTIVES = re.compile(r"\bcollectives (nccl|gloo)\b")
DEBUG = "pulumi config set --path 'podEnvironment.NCCL_DEBUG' INFO, then pulumi up"


def shared_memory(seen: Evidence) -> Result:
    """Whether NCCL has room for what the ranks of one pod exchange."""
    sizes = [int(probe["shared_memory_bytes"]) for probe in seen.probes.values()]
    if not sizes:
        return no_pod(seen, "shared-memory")
    said = f"/dev/shm has {min(sizes) // MIB:,} MiB in each pod"
    several = any(gpus_of(pod) > 1 for pod in seen.pods)
    if several and min(sizes) < SMALL_SHARED_MEMORY_BYTES:
        return result("shared-memory", "warning", said, "pulumi config set shmSize 8Gi")
    return result("shared-memory", "ok", said)


def transport(seen: Evidence) -> Result:
    """From NCCL's own lines; gloo has no choice of transport but that of the interface."""
    if seen.world_size == 1:
        return result("transport", "not applicable", "the run has one rank")
    if not seen.log and not seen.probes:
        return no_pod(seen, "transport")
    named = _COLLECTIVES.search(seen.log)
    if named and named[1] == "gloo":
        return _gloo(seen)
    transports = {f"NET/{m[1]}{m[2] or ''}" for m in _NET.finditer(seen.log) if m[1] != "Plugin"}
    ranks = {int(m[1]) for m in _RANKS.finditer(seen.log)}
    if ranks and max(ranks) != seen.world_size:
        said = f"NCCL has joined {max(ranks)} ranks, and the run has {seen.world_size}"
        return result("transport", "error", said, "./disttrain logs shows which rank is missing")
    joined = f"; {max(ranks)} ranks joined" if ranks else ""
    if transports:
        return result("transport", "ok", f"NCCL uses {', '.join(sorted(transports))}{joined}")
    if ranks and len(seen.pods) == 1:
        return result("transport", "ok", f"no network inside one pod{joined}")
    said = "NCCL has said nothing about its transport" if named else "the log does not reach so far"
    return result("transport", "not checked", f"{said}{joined}", DEBUG)


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
    """The sums themselves were checked when they were measured: a wrong one ends the run."""
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
