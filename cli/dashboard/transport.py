"""Reads the transport between the ranks of a run from the events of its node 0.

This module is pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from trainer.events.event import Event, Name
from trainer.transport.asked import network_name
from trainer.transport.lines import SOCKET

DIRECT = {"yes": ", with GPUDirect", "no": ", without GPUDirect"}


def transport_of(events: Iterable[Event]) -> dict[str, Any] | None:
    """Return the transport of the newest round, as the page shows it; None if it is not known.

    Log lines say the same, but are soon too old to be read. In the result, `words` names the
    transport. `asked` is what the network profile asks for; it is empty if it asks for nothing.
    `as_asked` says whether the transport is the one that was asked for; None if that is not known.
    """
    told: Mapping[str, Any] | None = None
    for event in events:
        if event.name == Name.ROUND_BEGUN:
            told = None
        elif event.name == Name.TRANSPORT:
            told = event.values
    if told is None:
        return None
    names = dict.fromkeys(
        name for each in _each(told, "transport") for name in each.split("+") if name
    )
    if not names:
        return None
    words = " and ".join(map(network_name, names))
    if not names.keys() <= {"none", "unknown"}:
        devices, direct = ", ".join(_each(told, "device")), _each(told, "gpu_direct")
        words += f" ({devices})" if devices else ""
        has_answer = len(direct) == 1 and list(names) != [SOCKET]
        words += DIRECT.get(direct[0], "") if has_answer else ""
    answer = told.get("as_asked")
    return {
        "words": words,
        "asked": " or ".join(map(network_name, _each(told, "asked"))),
        "as_asked": answer if isinstance(answer, bool) else None,
    }


def _each(told: Mapping[str, Any], key: str) -> list[str]:
    return [text for text in str(told.get(key) or "").split(",") if text]
