"""The messages between the entrypoints, as mappings that are checked before their use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast, get_args


@dataclass(frozen=True)
class Hello:
    """The first message of a node; `digest` identifies the run configuration and the code.

    `instance` differs for each start of an entrypoint, `machine` is the same for all nodes on one
    machine, and `name` is for people. `proof` names the file that the node has written to the
    volume (trainer/volume/proof.py). It is empty if the node could not write the file, or if the
    volume is not checked.
    """

    node_rank: int
    nnodes: int
    digest: str
    instance: str
    machine: str
    local_ranks: int
    name: str
    proof: str = ""


@dataclass(frozen=True)
class Start:
    """A round begins: start the ranks now."""

    round: int
    port: int
    nodes: list[int]
    """The nodes of the round, in order."""
    first_rank: int
    """The first rank of this node among all ranks of the round."""
    world_size: int
    """The number of ranks of all nodes of the round."""
    ranks_on_machine: int
    """The number of ranks of all nodes that share this node's machine."""
    address: str
    """The address at which other machines reach node 0; empty if all nodes are on one machine."""
    proofs: list[str] = field(default_factory=list[str])
    """The `proof` in the Hello of each node of the round, in the order of `nodes`."""


@dataclass(frozen=True)
class Proven:
    """The node has written to the volume and has seen what the other nodes have written.

    The times are those of trainer.volume.figures.Figures, in microseconds.
    """

    write_microseconds: int
    rename_microseconds: int
    visible_microseconds: int
    file_system: str


@dataclass(frozen=True)
class Stepped:
    """All ranks of the node have made their first update of this round."""


@dataclass(frozen=True)
class Stalled:
    """The ranks of the node do not move any more."""

    states: str
    """Where the ranks are, as trainer.watch.hang.to_text writes it."""
    seconds: int
    """For how many seconds the ranks have not moved."""


@dataclass(frozen=True)
class Failing:
    """A rank of the node has failed, and its other ranks are being ended."""


@dataclass(frozen=True)
class Regroup:
    """Save, end the ranks and connect again: the next round has more nodes."""

    reason: str


@dataclass(frozen=True)
class Stop:
    """The round is lost: end the ranks; `code` is one of trainer.launch.exit_codes."""

    reason: str
    code: int


@dataclass(frozen=True)
class Ended:
    """How the ranks of a node ended; `code` is one of trainer.launch.exit_codes."""

    code: int
    reason: str


@dataclass(frozen=True)
class Wait:
    """What the node has to wait for before its next round.

    `is_sure`: the node need not give up, because the round comes without any further node.
    """

    reason: str
    is_sure: bool


@dataclass(frozen=True)
class Refused:
    """Node 0 does not accept the node, or does not accept it yet."""

    reason: str


@dataclass(frozen=True)
class Ping:
    """Asks whether the peer is alive."""


@dataclass(frozen=True)
class Pong:
    """The answer to a Ping."""


Message = (
    Hello
    | Wait
    | Start
    | Proven
    | Stepped
    | Stalled
    | Failing
    | Regroup
    | Stop
    | Ended
    | Refused
    | Ping
    | Pong
)
_KINDS = {kind.__name__.lower(): kind for kind in get_args(Message)}
_TYPES: dict[str, type] = {
    "int": int,
    "str": str,
    "bool": bool,
    "list[int]": list,
    "list[str]": list,
}
_ITEMS: dict[str, type] = {"list[int]": int, "list[str]": str}


def to_mapping(message: Message) -> dict[str, Any]:
    """Return the message, with its kind, as a mapping of values that JSON can write."""
    return {"kind": type(message).__name__.lower(), **vars(message)}


def from_mapping(value: object) -> Message:
    """Return the message that `to_mapping` has turned into `value`.

    Raises:
        ValueError: `value` is not exactly one of the messages.
    """
    if not isinstance(value, Mapping):
        raise ValueError("a message is a mapping")
    given = dict(cast(Mapping[str, Any], value))
    kind = _KINDS.get(str(given.pop("kind", None)))
    if kind is None:
        raise ValueError("unknown kind of message")
    types = {each.name: _TYPES[str(each.type)] for each in fields(kind)}
    items = {each.name: _ITEMS.get(str(each.type)) for each in fields(kind)}
    if given.keys() != types.keys():
        raise ValueError(f"{kind.__name__} has {sorted(given)}, not {sorted(types)}")
    for name, wanted in types.items():
        if type(given[name]) is not wanted:
            raise ValueError(f"{kind.__name__}.{name} is {given[name]!r}")
        if wanted is list and any(
            type(item) is not items[name] for item in cast(list[Any], given[name])
        ):
            raise ValueError(f"{kind.__name__}.{name} is {given[name]!r}")
    return kind(**given)
