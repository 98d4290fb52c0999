"""A queue with a topology: the objects that the platform makes, what a run asks of Kueue, and what
is refused.
"""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from infra.kube.queues.kueue import VERSIONS
from infra.kube.queues.platform_queues_seen import QueuesSeen
from tests.unit.program.parts import training_template
from tests.unit.settings.reading import refusal
from tests.unit.stacks import Deployment, RecordingMonitor, deploy, raw_settings, run_with

HOST, RACK, ZONE = "kubernetes.io/hostname", "example.com/rack", "topology.kubernetes.io/zone"
LEVELS = [ZONE, RACK, HOST]
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
GROUP = "kueue.x-k8s.io/podset-group-name"


def queues(*levels: str) -> dict[str, object]:
    """Return the setting of a queue with these levels."""
    return {"queues": {"name": "gpus", "quota": {"cpu": 4, "memory": "8Gi"}, "topology": levels}}


RUN: dict[str, object] = {"queue": "gpus", "topology": "indexed-job", "pods": 2}
IN_QUEUE = {**queues(*LEVELS), **RUN}


def asked(made: Deployment) -> dict[str, str]:
    """Return the annotations by which the pods ask something of Kueue."""
    annotations = training_template(made)["metadata"].get("annotations", {})
    return {key: value for key, value in annotations.items() if "kueue" in key}


@pytest.mark.parametrize("version", VERSIONS)
def test_flavor_names_a_topology_of_the_levels(tmp_path: Path, version: str) -> None:
    """The platform makes a Topology with the levels of the settings, and the queue's flavor names
    it. The objects are made in the order in which Kueue needs them.
    """
    with patch("tests.unit.stacks.KUEUE", lambda: QueuesSeen(version)):
        made = deploy("sandbox", tmp_path, queues(*LEVELS))
    topology = made.one("queues-topology")
    assert topology.type == f"kubernetes:kueue.x-k8s.io/{version}:Topology"
    assert topology.inputs["spec"] == {"levels": [{"nodeLabel": level} for level in LEVELS]}
    name = topology.inputs["metadata"]["name"]
    flavor = made.one("queues-flavor").inputs
    assert flavor["spec"]["topologyName"] == flavor["metadata"]["name"] == name
    assert flavor["spec"]["nodeLabels"]  # Kueue demands at least one label
    (group,) = made.one("queues-cluster-queue").inputs["spec"]["resourceGroups"]
    assert [each["name"] for each in group["flavors"]] == [name]
    opened = json.loads(made.one("queues-open-gpus").inputs["stdin"])
    claimed = json.loads(made.one("queues-claim").inputs["stdin"])
    assert opened["topology"] == claimed["topology"] == name
    names = [resource.name for resource in made.resources]
    order = ["claim", "topology", "flavor", "cluster-queue", "local-queue", "open-gpus"]
    places = [names.index(f"queues-{role}") for role in order]
    assert places == sorted(places)


def test_other_levels_are_objects_of_other_names(tmp_path: Path) -> None:
    """Other levels make objects of other names, because Kueue does not let a topology be changed. A
    queue without a topology keeps its former name.
    """

    def name(*levels: str) -> str:
        return (
            deploy("sandbox", tmp_path, queues(*levels))
            .one("queues-flavor")
            .inputs["metadata"]["name"]
        )

    assert name() == "disttrain-gpus"
    found = [name(), name(HOST), name(RACK, HOST), name(ZONE, HOST), name(*LEVELS)]
    assert len(set(found)) == len(found)
    assert all(each.startswith("disttrain-gpus") for each in found)
    without = deploy("sandbox", tmp_path, queues())
    assert "queues-topology" not in [resource.name for resource in without.resources]
    assert "topology" not in json.loads(without.one("queues-open-gpus").inputs["stdin"])


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, {PREFERRED: HOST}),
        ({"placement": "packed"}, {PREFERRED: HOST}),
        ({"placement": "packed", "placementLabel": RACK}, {PREFERRED: RACK}),
        ({"placement": "one-place", "placementLabel": RACK}, {REQUIRED: RACK}),
        ({"placement": "one-place", "pods": 1}, {}),
        ({"podAnnotations": {REQUIRED: ZONE}}, {REQUIRED: ZONE}),
        ({"queue": "of-somebody-else"}, {}),
    ],
)
def test_run_asks_kueue_for_its_places(
    tmp_path: Path, changes: dict[str, object], wanted: dict[str, str]
) -> None:
    """The placement of a run in the platform's queue is asked of Kueue by annotations. The
    scheduler is told nothing, because Kueue gives each pod its machine.
    """
    made = deploy("sandbox", tmp_path, {**IN_QUEUE, **changes})
    assert asked(made) == wanted
    spec = training_template(made)["spec"]
    assert not {"affinity", "topologySpreadConstraints"} & spec.keys()


def test_queue_of_somebody_else_is_asked_for_one_place_alone(tmp_path: Path) -> None:
    """A run in somebody else's queue asks Kueue only for `one-place`. Whether that queue has a
    topology is not known, and a queue without one would never start a run that has only a
    preference.
    """
    theirs = {**RUN, "queue": "team", "placementLabel": RACK}
    packed = deploy("sandbox", tmp_path, {**theirs, "placement": "packed"})
    assert asked(packed) == {}
    assert "affinity" in training_template(packed)["spec"]
    assert "place" not in json.loads(packed.one("training-queue").inputs["stdin"])
    one = deploy("sandbox", tmp_path, {**theirs, "placement": "one-place"})
    assert asked(one) == {REQUIRED: RACK}
    assert json.loads(one.one("training-queue").inputs["stdin"])["place"] == RACK


def test_run_on_another_stacks_platform_knows_its_topology(tmp_path: Path) -> None:
    """A run on another stack's platform knows the levels of that platform's queue from the outputs,
    and a level that is none of them is refused.
    """
    platform = deploy("sandbox", tmp_path, {**queues(*LEVELS), "topology": "none"}).outputs
    files = {"datasetFile": str(tmp_path / "input.txt")}

    def run(**changes: object) -> Deployment:
        monitor = RecordingMonitor(dict(platform))
        given = raw_settings("sandbox-multipod", {**RUN, **files, **changes})
        run_with(monitor, "sandbox-multipod", given)
        return monitor.deployment

    assert asked(run(placement="one-place", placementLabel=RACK)) == {REQUIRED: RACK}
    with pytest.raises(Exception, match=r"placementLabel: 'example.com/row' cannot be"):
        run(placementLabel="example.com/row")


@pytest.mark.parametrize(
    ("topology", "workload"),
    [("mpijob", "training-mpi-job"), ("pytorchjob", "training-pytorch-job")],
)
def test_all_pods_of_a_run_are_one_set_to_kueue(
    tmp_path: Path, topology: str, workload: str
) -> None:
    """Launcher and workers of an MPIJob are one group for Kueue. As two sets, each of them could
    get a rack of its own.
    """
    changes = {"placement": "one-place", "placementLabel": RACK, "topology": topology}
    spec = deploy("sandbox", tmp_path, {**IN_QUEUE, **changes}).one(workload).inputs["spec"]
    sets: dict[str, Any] = spec.get("mpiReplicaSpecs") or spec["pytorchReplicaSpecs"]
    found = [each["template"]["metadata"]["annotations"] for each in sets.values()]
    assert all(each[REQUIRED] == RACK for each in found)
    groups = [each.get(GROUP) for each in found]
    assert groups == (["run", "run"] if topology == "mpijob" else [None])
    without = deploy("sandbox", tmp_path, {**RUN, "queue": "team", "topology": topology})
    assert GROUP not in str(without.one(workload).inputs)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ("rack", "queues.topology: 'rack' cannot be used: it is not a list of labels"),
        ([RACK, 7, HOST], "cannot be used: it is not a list of labels. Write it like"),
        (["a b", HOST], "queues.topology[0]: 'a b' cannot be used: it is not the key of a label"),
        ([RACK, RACK, HOST], f"queues.topology[1]: '{RACK}' cannot be used: it is level 1 already"),
        ([HOST, RACK], f"queues.topology[0]: '{HOST}' cannot be used: a machine contains no other"),
        ([ZONE, RACK], f"'queues.topology[2]' {HOST}"),
        ([f"example.com/{n}" for n in range(16)] + [HOST], "Kueue accepts at most 16 levels"),
    ],
)
def test_levels_that_cannot_be_are_refused(levels: object, said: str) -> None:
    """Wrong levels of a topology are refused with the reason. A run that names one of them gets no
    further message.
    """
    given = {"queues": {"name": "gpus", "topology": levels}, **RUN}
    told = refusal({**given, "placement": "one-place", "placementLabel": RACK}, stack="sandbox")
    assert said in told
    assert "placement" not in told


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"placementLabel": "example.com/row"},
            f"placementLabel: 'example.com/row' cannot be used: it is no level of the topology of "
            f"queue gpus. Set one of {', '.join(LEVELS)}",
        ),
        (
            {"placement": "spread"},
            "placement: 'spread' cannot be used: queue gpus of the platform has a topology",
        ),
        (
            {"placement": "one-place", "queue": ""},
            "placement: 'one-place' cannot be used: the run is in no queue",
        ),
        (
            {"placement": "one-place", **queues()},
            "placement: 'one-place' cannot be used: queue gpus of the platform has no topology",
        ),
        (
            {"placement": "one-place", "podAnnotations": {PREFERRED: RACK}},
            f"podAnnotations.{PREFERRED}: '{RACK}' cannot be used: placement is one-place",
        ),
        (
            {"podAnnotations": {PREFERRED: RACK, REQUIRED: RACK}},
            f"podAnnotations.{PREFERRED}: '{RACK}' cannot be used: {REQUIRED} is set, too, and",
        ),
        (
            {"podAnnotations": {REQUIRED: "one rack"}},
            f"podAnnotations.{REQUIRED}: 'one rack' cannot be used: it is not the key of a label",
        ),
    ],
)
def test_wishes_that_the_queue_cannot_keep_are_refused(
    changes: dict[str, object], said: str
) -> None:
    """A placement that the queue's topology cannot give, and annotations with which Kueue's webhook
    would refuse the new workload after the former one has ended, are refused with what can be set.
    """
    assert said in refusal({**IN_QUEUE, **changes}, stack="sandbox")
