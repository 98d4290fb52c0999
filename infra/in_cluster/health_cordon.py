"""Decides when a machine is cordoned. All functions are pure. The file goes into a pod unchanged.

An annotation of the node marks a cordon by disttrain. This program never removes a cordon. If a
person runs `kubectl uncordon NODE`, this means that the machine is good enough: the faults of that
moment no longer cordon the machine, but later faults do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

ANNOTATION = "disttrain.dev/cordoned"
LONGEST_REASON = 500


@dataclass(frozen=True)
class Mark:
    """The content of the node's annotation.

    Args:
        is_ours: whether disttrain has cordoned the node, and nobody has uncordoned it since.
        because: why disttrain has cordoned it; empty if `is_ours` is false.
        accepted: the keys of the findings that existed when a person uncordoned the node.
    """

    is_ours: bool = False
    because: str = ""
    accepted: tuple[str, ...] = ()

    def to_text(self) -> str | None:
        """The annotation's value; None if the node needs no annotation."""
        if self == Mark():
            return None
        content = {"cordoned": self.is_ours, "because": self.because, "accepted": self.accepted}
        return json.dumps(content)

    @staticmethod
    def from_text(text: str | None) -> "Mark":
        """Read the annotation's value. An unreadable value counts as no annotation."""
        try:
            content = json.loads(text or "{}")
            accepted = tuple(map(str, content.get("accepted", ())))
            return Mark(bool(content.get("cordoned")), str(content.get("because", "")), accepted)
        except (ValueError, TypeError, AttributeError):
            return Mark()


@dataclass(frozen=True)
class Decision:
    """What to do with a node.

    Args:
        mark: the new content of the annotation.
        cordons: whether the node is to be cordoned now.
        asks: whether the training pods on the node are to be evicted, after they have saved.
    """

    mark: Mark
    cordons: bool = False
    asks: bool = False


def decide(is_cordoned: bool, mark: Mark, unusable: Mapping[str, str]) -> Decision:
    """Decide what to do with a node.

    Args:
        is_cordoned: whether the node is cordoned, by disttrain or by anybody else.
        mark: the content of its annotation.
        unusable: the texts of the findings that make the machine unusable, by their keys.
    """
    if mark.is_ours and not is_cordoned:  # a person has uncordoned it
        return Decision(Mark(accepted=tuple(sorted(unusable))))
    accepted = tuple(key for key in mark.accepted if key in unusable)
    new = [text for key, text in unusable.items() if key not in accepted]
    if not new or is_cordoned:
        return Decision(Mark(mark.is_ours, mark.because, accepted), asks=bool(new))
    return Decision(Mark(True, "; ".join(new)[:LONGEST_REASON], accepted), True, True)
