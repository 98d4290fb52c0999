"""Whether the pods of a run shall be near each other or apart, and what one place is."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from infra.names import HOSTNAME_LABEL
from infra.settings.pod_marks import is_key
from infra.settings.reader import Reader

PlacementChoice: TypeAlias = Literal["auto", "packed", "spread", "one-place"]


@dataclass(frozen=True)
class NeighbourSettings:
    """The choice, and the key of the label whose value is the same on all nodes of one place."""

    placement: PlacementChoice
    label: str


LEFT_TO_KUBERNETES = NeighbourSettings("auto", HOSTNAME_LABEL)


def read_neighbours(reader: Reader) -> NeighbourSettings:
    """Read the section; what is wrong is left with `reader`."""
    placement = reader.choice("placement", ("auto", "packed", "spread", "one-place"))
    label = reader.text("placementLabel")
    if not is_key(label):
        hint = "Write it like topology.kubernetes.io/rack"
        reader.problem("placementLabel", label, "it is not the key of a label", hint)
    return NeighbourSettings(cast(PlacementChoice, placement), label)
