"""On which nodes a volume can be used, and what is said if the pods do not fit on these nodes.

tests/kube/test_pods_findings.py compares the results with the real scheduler.
"""

from collections.abc import Mapping
from typing import cast

import pytest

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError
from infra.kube.pods.room import PodNeeds, room_problem
from infra.kube.volumes.limited_volumes import LimitedVolume, limited_volumes
from infra.names import GPU_RESOURCE
from tests.unit.kube.volumes.zone_nodes import ZONE, Json, node

SPEC = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}, {"emptyDir": {}}]}
CLAIM = "/api/v1/namespaces/ml/persistentvolumeclaims/data"


def term(*expressions: tuple[str, str, list[str]], kind: str = "matchExpressions") -> Json:
    return {
        kind: [{"key": key, "operator": how, "values": values} for key, how, values in expressions]
    }


IN_A = term((ZONE, "In", ["a"]))
VOLUME = {
    "metadata": {"name": "pv-1"},
    "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [IN_A]}}},
}


@pytest.mark.parametrize(
    ("terms", "reached"),
    [
        ([IN_A], True),
        ([term((ZONE, "In", ["b"]))], False),
        ([term((ZONE, "In", ["b"])), IN_A], True),  # one matching term is enough
        ([term((ZONE, "In", ["a"]), ("disk", "Exists", []))], False),  # one expression fails
        ([term((ZONE, "NotIn", ["b"]), ("disk", "DoesNotExist", []))], True),
        ([term(("cores", "Gt", ["7"]))], True),
        ([term(("cores", "Lt", ["7"])), term((ZONE, "Gt", ["7"]))], False),
        ([term(("metadata.name", "In", ["one"]), kind="matchFields")], True),
        ([term(("metadata.name", "In", ["two"]), kind="matchFields")], False),
        ([{}], False),
    ],
)
def test_node_is_reached_as_kubernetes_reads_the_terms(terms: list[Json], reached: bool) -> None:
    assert LimitedVolume("a volume", terms).reaches(node("one", cores="8")) is reached


class StandInApi:
    """Stands in for the API client of a cluster with these objects by their paths. It may not read
    an object that is None.
    """

    def __init__(self, objects: Mapping[str, Json | None]) -> None:
        self._objects = objects

    def get(self, path: str) -> Json | None:
        if path in self._objects and self._objects[path] is None:
            raise ApiError(403, "forbidden")
        return self._objects.get(path)


def places(objects: Mapping[str, Json | None], class_name: str = "") -> tuple[list[str], list[str]]:
    """Return a text for each place of the pod's volumes, and the notes about what could not be
    read.
    """
    found = Findings()
    api = cast(Api, StandInApi(objects))
    known = limited_volumes(api, "ml", SPEC, class_name, found)
    return [f"{place.what}: {place.words}" for place in known], found.notes


def test_place_is_that_of_the_volume_or_of_the_class() -> None:
    """A claim with a volume can be used where that volume can be used. For a claim without a
    volume, and for one that is made later, the storage class decides. A claim or volume that the
    credentials may not read gets a note.
    """
    bound = {"spec": {"volumeName": "pv-1", "storageClassName": "disks"}}
    waiting = {"spec": {"storageClassName": "disks"}}
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "c"]}]}]
    class_ = {"metadata": {"name": "disks"}, "allowedTopologies": topologies}
    volume = "/api/v1/persistentvolumes/pv-1"
    classes = "/apis/storage.k8s.io/v1/storageclasses/disks"
    there: dict[str, Json | None] = {volume: VOLUME, classes: class_}
    of_class = [f"a volume of the storage class disks: {ZONE} In a, c"]
    assert places({**there, CLAIM: bound}) == (
        [f"the volume pv-1 of the claim data: {ZONE} In a"],
        [],
    )
    assert places({**there, CLAIM: waiting}) == (of_class, [])
    assert places(there, "disks") == (of_class, [])
    assert places(there) == places({**there, classes: {"metadata": {}}}, "disks") == ([], [])
    anywhere = {"metadata": {"name": "pv-1"}, "spec": {"nfs": {}}}
    assert places({volume: anywhere, CLAIM: bound}) == ([], [])
    for hidden in ({CLAIM: None}, {CLAIM: bound, volume: None}):
        assert "on which nodes the volume of the claim data can be used" in places(hidden)[1][0]


def test_class_that_may_not_be_read() -> None:
    """A note says that the nodes of a storage class were not checked if its object may not be read.
    Otherwise its volumes would silently count as usable on every node.
    """
    classes = "/apis/storage.k8s.io/v1/storageclasses/disks"
    unseen = "on which nodes a volume of the storage class disks can be used"
    for claim in ({}, {CLAIM: {"spec": {"storageClassName": "disks"}}}):
        known, notes = places({**claim, classes: None}, "disks")
        assert known == []
        assert len(notes) == 1
        assert unseen in notes[0]


def test_pods_and_their_volume_need_one_place() -> None:
    """Only nodes on which the pods' volumes can be used count as room for the pods. If no node can
    use them, the message names the volume and where it can be used.
    """
    place = LimitedVolume("the volume pv-1 of the claim data", [IN_A])
    needs = PodNeeds(1, {"cpu": "6"}, {}, [], [place])
    assert room_problem([node("one"), node("two", zone="b")], needs) == ""
    said = room_problem([node("two", zone="b"), node("three", zone="c")], needs)
    assert said.startswith(
        f"storage: the volume pv-1 of the claim data can be used on nodes with {ZONE} In a alone, "
        f"and no node that these pods could use is one of them ({ZONE} is b, c; compared were two, "
        "three). Set a claim or a class of their place"
    )
    two = PodNeeds(2, {"cpu": "6"}, {}, [], [place])
    said = room_problem([node("one"), node("two", zone="b")], two)
    assert "the nodes have room for 1 of these pods (one: 1)" in said
    other = LimitedVolume("the volume pv-2 of the claim old", [term((ZONE, "In", ["b"]))])
    said = room_problem(
        [node("one"), node("two", zone="b")], PodNeeds(1, {}, {}, [], [place, other])
    )
    assert "has both the volume pv-1 of the claim data and the volume pv-2" in said


def test_volume_far_from_room_is_named() -> None:
    """If the volume can only be used on nodes without enough GPUs, the message names the volume.
    That these nodes have no GPUs would not say what to change, because other nodes have them.
    """
    needs = PodNeeds(1, {GPU_RESOURCE: "8"}, {}, [], [LimitedVolume("the volume pv-1", [IN_A])])
    gpus = node("gpu", zone="b")
    gpus["status"]["allocatable"][GPU_RESOURCE] = "8"
    said = room_problem([node("cpu"), gpus], needs)
    assert said.startswith(
        f"storage: the volume pv-1 can be used on nodes with {ZONE} In a alone, and no node that "
        f"these pods could use is one of them ({ZONE} is b; compared were gpu)"
    )
    # Without the volume the pods would have no room either.
    assert room_problem([node("cpu")], needs).startswith("gpusPerPod: a pod asks for 8")
