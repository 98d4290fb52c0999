"""Whether the pods of a run are near each other or apart, by the settings and in the manifests."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.program.parts import training_template
from tests.unit.settings.reading import refusal
from tests.unit.stacks import deploy

SEVERAL: dict[str, object] = {"topology": "indexed-job", "pods": 2, "gpusPerPod": 1}
RACK = {"placementLabel": "example.org/rack"}
FIELDS = {"affinity", "topologySpreadConstraints"}


def pod_spec(scratch: Path, **changes: object) -> dict[str, Any]:
    """Return the spec of the training's pods in a stack with these settings."""
    return training_template(deploy("dev", scratch, {**SEVERAL, **changes}))["spec"]


def test_packed_pods_wish_to_be_near_pods_of_the_same_run(tmp_path: Path) -> None:
    """Pods of a run that are packed ask to be near each other, and not near those of other runs.
    Kubernetes' own default, which spreads pods over machines, is turned off.
    """
    spec = pod_spec(tmp_path, placement="packed", **RACK)
    (wish,) = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    term = wish["podAffinityTerm"]
    assert (wish["weight"], term["topologyKey"]) == (100, "example.org/rack")
    labels = term["labelSelector"]["matchLabels"]
    template = training_template(deploy("dev", tmp_path, {**SEVERAL, "placement": "packed"}))
    assert labels.items() <= template["metadata"]["labels"].items()
    assert "train-indexed" in labels.values()
    (rule,) = spec["topologySpreadConstraints"]
    assert rule["whenUnsatisfiable"] == "DoNotSchedule"
    assert rule["maxSkew"] > 1000


def test_spread_pods_wish_to_be_apart_from_pods_of_the_same_run(tmp_path: Path) -> None:
    spec = pod_spec(tmp_path, placement="spread", **RACK)
    (wish,) = spec["topologySpreadConstraints"]
    assert (wish["maxSkew"], wish["topologyKey"]) == (1, "example.org/rack")
    assert wish["whenUnsatisfiable"] == "ScheduleAnyway"
    assert "affinity" not in spec
    machine = pod_spec(tmp_path, placement="spread")["topologySpreadConstraints"][0]
    assert machine["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize(
    "changes",
    [{}, {"placement": "packed", "topology": "single-pod", "pods": 1}],
    ids=["auto", "one pod"],
)
def test_without_a_wish_or_with_one_pod_nothing_is_said(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """The pods ask for no place without the setting `placement`, or if the run has one pod."""
    assert not FIELDS & pod_spec(tmp_path, **changes).keys()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"placement": "pack"}, "placement: 'pack' cannot be used: placement has no such choice"),
        ({"placementLabel": "a b"}, "placementLabel: 'a b' cannot be used: it is not the key of"),
        ({"placementLabel": ""}, "Write it like topology.kubernetes.io/rack"),
    ],
)
def test_wrong_placement_is_named(changes: dict[str, object], said: str) -> None:
    assert said in refusal(changes)
