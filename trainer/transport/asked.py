"""Decides whether ranks use a transport that the network profile asks for, and words the result.

`./disttrain status` and `verify` recognize a node's line by its beginning (cli/status/progress.py).

This module does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.transport.lines import (
    EFA,
    IB,
    IB_OR_ROCE,
    KNOWN,
    ROCE,
    SOCKET,
    Transport,
)

VARIABLE = "DISTTRAIN_TRANSPORTS"
"""The variable with the transports that the network profile accepts, separated by commas."""
FILE_VARIABLE = "NCCL_DEBUG_FILE"
OWN_VARIABLES = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", FILE_VARIABLE)
"""If the user sets one of these variables, NCCL prints as it says, and the pod does not read it."""
AS_ASKED, OTHER, NOT_KNOWN, NOT_ASKED = (
    "transport as asked: ",
    "warning: transport not as asked: ",
    "transport not known: ",
    "transport: ",
)
STOPS = OTHER.removeprefix("warning: ")
"""How the reason begins if a run ends because of its transport."""
_MOST_DEVICES = 8
_NAMES = {
    SOCKET: "TCP sockets",
    IB: "InfiniBand",
    ROCE: "RoCE",
    EFA: "EFA",
    IB_OR_ROCE: "InfiniBand or RoCE",
}


@dataclass(frozen=True)
class Cause:
    """Why it may be another transport. `sign`: a pattern of the lines of NCCL that support it."""

    text: str
    sign: str


_RDMA_CAUSES = (
    Cause(
        "the pod has no RDMA device, so it has no /dev/infiniband: the network profile has to ask "
        "for one of the resources that `kubectl describe node` shows, and the link has to be up",
        r"NET/IB : No device found|plugin IB",
    ),
    Cause(
        "a variable of podEnvironment or of the image switches it off: NCCL_IB_DISABLE, NCCL_NET, "
        "NCCL_NET_PLUGIN or NCCL_IB_HCA",
        r"NCCL_(?:IB_DISABLE|NET|NET_PLUGIN|IB_HCA) set by|Plugin name set by env",
    ),
    Cause("the image has no libibverbs (package rdma-core)", r"libibverbs"),
)
_EFA_CAUSES = (
    Cause(
        "the pod has no EFA device: the network profile has to ask for vpc.amazonaws.com/efa, "
        "and the machine's security group has to let its own members through",
        r"No eligible providers|Unable to find a protocol|fi_getinfo|Could not find any optimal",
    ),
    Cause(
        "the image has no plugin aws-ofi-nccl, or one that cannot be loaded",
        r"NET/Plugin.*(?:No plugin found|Could not find|cannot open|not found)",
    ),
    Cause(
        "a variable of podEnvironment or of the image chooses another plugin or network: "
        "NCCL_NET_PLUGIN, NCCL_NET or FI_PROVIDER",
        r"NCCL_(?:NET|NET_PLUGIN) set by|Plugin name set by env",
    ),
)
_OTHER_CAUSES = (
    Cause(
        "a variable of podEnvironment or of the image chooses the network: NCCL_NET, "
        "NCCL_NET_PLUGIN or NCCL_IB_DISABLE",
        r"NCCL_(?:IB_DISABLE|NET|NET_PLUGIN) set by|Plugin name set by env",
    ),
    Cause("the image has a plugin for the network of its own", r"NET/Plugin"),
    Cause("the machines have another network than this profile is for: set another network", r"$^"),
)
_GLOO_CAUSES = (
    Cause("the ranks use gloo, which knows TCP alone: NCCL needs GPUs, and backend nccl", r"$^"),
)


def asked_of(text: str) -> tuple[str, ...]:
    """Return the transports in a value of VARIABLE; empty if none is asked for."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def as_asked(found: Transport, asked: tuple[str, ...]) -> bool | None:
    """Whether all connections to other machines use a transport in `asked`.

    The result is None if nothing is asked for, if it is not known, or if no network is used.
    """
    if not asked or not found.networks or stays_inside(found):
        return None
    answers = [_is_asked(network, asked) for network in found.networks]
    return False if False in answers else None if None in answers else True


def _is_asked(network: str, asked: tuple[str, ...]) -> bool | None:
    if network in asked:
        return True
    if network in KNOWN:
        return False
    if network == IB_OR_ROCE:
        return True if {IB, ROCE} <= {*asked} else None if {IB, ROCE} & {*asked} else False
    return None


def of_node(found: Mapping[int, Transport], asked: tuple[str, ...]) -> bool | None:
    """Whether all ranks of a node use a transport in `asked`; None if it is not known.

    If one rank has another transport, the result is False.
    """
    answers = [as_asked(transport, asked) for transport in found.values()]
    return False if False in answers else None if None in answers or not answers else True


def line(found: Mapping[int, Transport], asked: tuple[str, ...]) -> str:
    """Return the line in which a node reports the transport of its ranks.

    Args:
        found: The transport of each rank; not empty.
        asked: The transports that the network profile asks for; see VARIABLE.
    """
    others = {r: t for r, t in found.items() if as_asked(t, asked) is False}
    if others:
        wanted = " or ".join(_NAMES.get(name, name) for name in asked)
        likely = [cause_text(*each) for each in causes(next(iter(others.values())), asked)]
        numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(likely, 1))
        which = "Likely causes: " if len(likely) > 1 else "The cause: "
        said = numbered if len(likely) > 1 else likely[0]
        return f"{OTHER}{words(others)}, and the network profile asks for {wanted}. {which}{said}"
    unknown = {r: t for r, t in found.items() if _is_open(t, asked)}
    if unknown:
        named = sorted({_NAMES.get(n, n) for t in unknown.values() for n in t.networks})
        why = f"NCCL says {', '.join(named)}" if named else "NCCL has written no line that says it"
        return f"{NOT_KNOWN}{_ranks(unknown)}: {why}"
    return f"{AS_ASKED if of_node(found, asked) else NOT_ASKED}{words(found)}"


def reason_to_stop(text: str) -> str:
    """Return why a run with `train.transport_policy: stop` ends; `text` is the warning line."""
    what = text.removeprefix(OTHER)
    return f"{STOPS}{what}. The run ends because train.transport_policy is stop"


def is_known(found: Transport) -> bool:
    """Whether NCCL's lines have shown how the rank reaches others."""
    return bool(found.networks or found.inside)


def _is_open(found: Transport, asked: tuple[str, ...]) -> bool:
    """Whether it cannot be decided if the transport is one that was asked for."""
    if not is_known(found):
        return True
    return bool(asked) and not stays_inside(found) and as_asked(found, asked) is None


def causes(found: Transport, asked: tuple[str, ...]) -> list[tuple[Cause, str]]:
    """Return why it may be another transport, the likeliest cause first.

    Each cause comes with the line of NCCL that supports it, or with an empty text.
    """
    if found.library == "gloo":
        table = _GLOO_CAUSES
    elif EFA in asked:
        table = _EFA_CAUSES
    else:
        table = _RDMA_CAUSES if {IB, ROCE} & {*asked} else _OTHER_CAUSES

    def sign(cause: Cause) -> str:
        return next((text for text in found.reasons if re.search(cause.sign, text)), "")

    return sorted(((each, sign(each)) for each in table), key=lambda pair: not pair[1])


def cause_text(cause: Cause, said: str) -> str:
    """Return the words of a cause, with NCCL's line that supports it."""
    return f"{cause.text} (NCCL says: {said})" if said else cause.text


def words(found: Mapping[int, Transport]) -> str:
    """Return words for all ranks: `rank 0, 1 by NCCL over InfiniBand (mlx5_0), with GPUDirect`.

    `way` makes the part after `by`.
    """
    groups = dict[tuple[str, str], dict[int, Transport]]()
    for rank, transport in sorted(found.items()):
        groups.setdefault(_network_words(transport), {})[rank] = transport
    return "; ".join(f"{_ranks(each)} by {way(list(each.values()))}" for each in groups.values())


def way(found: Sequence[Transport]) -> str:
    """Return `NCCL over InfiniBand (mlx5_0), with GPUDirect; inside a machine by P2P/CUMEM`.

    Args:
        found: The transports of ranks that use the same networks and library.
    """
    over, end = _network_words(found[0])
    alone = all(map(stays_inside, found))
    devices = list(dict.fromkeys(device for each in found for device in each.devices))
    more = ", ..." if len(devices) > _MOST_DEVICES else ""
    names = f" ({', '.join(devices[:_MOST_DEVICES])}{more})" if devices and not alone else ""
    inside = list(dict.fromkeys(name for each in found for name in each.inside))
    where = " by " if alone else "; inside a machine by "
    return f"{over}{names}{end}{where if inside else ''}{', '.join(inside)}"


def stays_inside(found: Transport) -> bool:
    """Whether all ranks are on one machine, and no connection by the network was seen."""
    return found.machines == 1 and not found.is_used


def network_name(name: str) -> str:
    """Return words for a network, named as in the label `transport` or in a network profile.

    `watch.labels_of` makes the label.
    """
    special = {"none": "inside one machine", "unknown": "a transport that NCCL does not tell"}
    return special.get(name) or _NAMES.get(name, name)


def _network_words(found: Transport) -> tuple[str, str]:
    """Return the words before the names of the devices, and those after them."""
    library = {"nccl": "NCCL"}.get(found.library, found.library)
    if stays_inside(found):
        return f"{library} inside one machine", ""
    over = " and ".join(_NAMES.get(name, name) for name in found.networks) or "no known network"
    if found.has_gpu_direct is None or found.networks == (SOCKET,):
        return f"{library} over {over}", ""
    return f"{library} over {over}", f", with{'' if found.has_gpu_direct else 'out'} GPUDirect"


def _ranks(found: Mapping[int, Transport]) -> str:
    return f"rank {', '.join(map(str, sorted(found)))}"
