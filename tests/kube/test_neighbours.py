"""Pods that shall be near each other or apart: where the real scheduler puts them, on two racks.

The nodes are only objects. No kubelet is behind them, which does not matter to the scheduler.
"""

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from infra.names import HOSTNAME_LABEL
from infra.settings.pods_neighbours import NeighbourSettings, PlacementChoice
from infra.workloads.neighbours import neighbours
from tests.kube.lab import Json, Lab, wait_for
from tests.kube.pool import NODES, POOL, node, pod

RACK = "test.disttrain.dev/rack"
NODES_IN_RACK = 16
OFFERS = {"cpu": "4", "memory": "16Gi", "pods": "110"}
WHOLE_NODE, QUARTER = {"cpu": "4"}, {"cpu": "1"}


@pytest.fixture(scope="module")
def racks(lab: Lab) -> Iterator[dict[str, Json]]:
    """Yield the nodes of two racks by their names, once the scheduler knows them all."""
    pool = uuid.uuid4().hex[:8]
    made: dict[str, Json] = {}
    try:
        for number in range(2 * NODES_IN_RACK):
            item = node(pool, OFFERS)
            name = item["metadata"]["name"]
            rack = f"rack-{number // NODES_IN_RACK}"
            item["metadata"]["labels"] |= {RACK: rack, HOSTNAME_LABEL: name}
            lab.api.create(NODES, item)
            made[name] = item
        # The scheduler learns of nodes in the order of their creation, so it knows all if it knows
        # the last.
        placed(lab, [pod(QUARTER, {HOSTNAME_LABEL: list(made)[-1]})])
        yield made
    finally:
        for name in made:
            lab.api.delete(f"{NODES}/{name}", {})


def placed(lab: Lab, wanted: list[Json]) -> list[str]:
    """Return the node that the scheduler finds for each of the pods, which are then removed.

    Like the pods of a run, they have a Service. Kubernetes spreads the pods of a Service by
    default, so the wishes of the run have to prevail over that.
    """
    namespace = f"/api/v1/namespaces/{lab.namespace()}"
    path = f"{namespace}/pods"
    spec = {"clusterIP": "None", "selector": wanted[0]["metadata"].get("labels", {"no": "run"})}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "run"}, "spec": spec}
    lab.api.create(f"{namespace}/services", service)
    names = [lab.api.create(path, each)["metadata"]["name"] for each in wanted]

    def places() -> list[str]:
        return [(lab.api.get(f"{path}/{name}") or {})["spec"].get("nodeName", "") for name in names]

    wait_for("a node for each pod", lambda: all(places()))
    found = places()
    for name in names:
        lab.api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
    return found


@pytest.mark.parametrize(
    ("placement", "label", "requests", "pods", "in_each_place"),
    [
        ("packed", RACK, WHOLE_NODE, NODES_IN_RACK, [NODES_IN_RACK]),
        ("packed", RACK, WHOLE_NODE, NODES_IN_RACK + 2, [NODES_IN_RACK, 2]),
        ("packed", HOSTNAME_LABEL, QUARTER, 4, [4]),
        ("spread", RACK, WHOLE_NODE, 6, [3, 3]),
        ("spread", HOSTNAME_LABEL, QUARTER, 6, [1] * 6),
    ],
)
def test_pods_of_a_run_are_where_their_placement_wants_them(
    lab: Lab,
    racks: dict[str, Json],
    placement: PlacementChoice,
    label: str,
    requests: dict[str, str],
    pods: int,
    in_each_place: list[int],
) -> None:
    """`packed` puts the pods of a run into one rack or node if they fit there, and `spread` divides
    them.

    Pods that do not fit beside the others still get a place elsewhere.
    """
    run = {"run": uuid.uuid4().hex[:8]}
    wish = neighbours(NeighbourSettings(placement, label), pods, run)
    pool = next(iter(racks.values()))["metadata"]["labels"][POOL]
    wanted = pod(requests, {POOL: pool}, **wish)
    wanted["metadata"]["labels"] = run
    labels = {name: item["metadata"]["labels"] for name, item in racks.items()}
    places = Counter(labels[name][label] for name in placed(lab, [wanted] * pods))
    assert sorted(places.values(), reverse=True) == in_each_place
