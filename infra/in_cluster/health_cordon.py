"""When a machine is cordoned, and when not again. Pure. The file goes into a pod as it is.

A cordon of ours is marked at its node by an annotation. Nobody's cordon is ever taken back here:
`kubectl uncordon NODE` is somebody's word that the machine is good enough, and from then on what
was wrong at that moment cordons it no more. What comes later does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

ANNOTATION = "disttrain.dev/cordoned"
LONGEST_REASON = 500


@dataclass(frozen=True)
class Mark:
    """What the annotation says.

    Args:
        is_ours: whether the node was cordoned by us, and nobody has taken that back.
        because: why; empty where it is not ours.
        accepted: keys of the findings with which somebody has uncordoned it.
    """

    is_ours: bool = False
    because: str = ""
    accepted: tuple[str, ...] = ()

    def to_text(self) -> str | None:
        """The annotation's value; None: the node needs none."""
        if self == Mark():
            return None
        content = {"cordoned": self.is_ours, "because": self.because, "accepted": self.accepted}
        return json.dumps(content)

    @staticmethod
    def from_text(text: str | None) -> "Mark":
        """Read it; what somebody has made unreadable counts as none."""
        try:
            content = json.loads(text or "{}")
            accepted = tuple(map(str, content.get("accepted", ())))
            return Mark(bool(content.get("cordoned")), str(content.get("because", "")), accepted)
        except (ValueError, TypeError, AttributeError):
            return Mark()


@dataclass(frozen=True)
class Decision:
    """What to do.

    Args:
        mark: what the annotation has to say.
        cordons: whether the node is to be cordoned now.
        asks: whether the trainings there are to be asked to save and go.
    """

    mark: Mark
    cordons: bool = False
    asks: bool = False


def decide(is_cordoned: bool, mark: Mark, unusable: Mapping[str, str]) -> Decision:
    """What becomes of a node.

    Args:
        is_cordoned: whether anybody has cordoned it.
        mark: what its annotation says.
        unusable: text of each finding that makes it unusable, by its key.
    """
    if mark.is_ours and not is_cordoned:  # somebody's word
        return Decision(Mark(accepted=tuple(sorted(unusable))))
    accepted = tuple(key for key in mark.accepted if key in unusable)
    new = [text for key, text in unusable.items() if key not in accepted]
    if not new or is_cordoned:
        return Decision(Mark(mark.is_ours, mark.because, accepted), asks=bool(new))
    return Decision(Mark(True, "; ".join(new)[:LONGEST_REASON], accepted), True, True)
