"""Reads whether the pods of a run are placed near each other or apart, and what a place is."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from infra.names import HOSTNAME_LABEL
from infra.settings.pod_labels import is_key
from infra.settings.reader import Reader

PlacementChoice: TypeAlias = Literal["auto", "packed", "spread", "one-place"]


@dataclass(frozen=True)
class NeighbourSettings:
    """The setting `placement`, and the label that has the same value on all nodes of one place."""

    placement: PlacementChoice
    label: str


LEFT_TO_KUBERNETES = NeighbourSettings("auto", HOSTNAME_LABEL)


def read_neighbours(reader: Reader) -> NeighbourSettings:
    """Read the placement. `reader` collects the problems."""
    placement = reader.choice("placement", ("auto", "packed", "spread", "one-place"))
    label = reader.text("placementLabel")
    if not is_key(label) and reader.are_right("placementLabel"):
        hint = "Write it like topology.kubernetes.io/rack"
        reader.problem("placementLabel", label, "it is not the key of a label", hint)
    return NeighbourSettings(cast(PlacementChoice, placement), label)
