"""A queue's topology before it is made, when it changes, and when it goes, on a real API server.

Kueue's controller does not run here; what it does with a topology is in tests/e2e/test_queue.py.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL
from infra.kube.objects import Json
from infra.kube.queues import claim_queues, open_queue
from infra.kube.queues.platform_queues_seen import QueuesWanted, read_queues
from infra.kube.queues.queue_findings import queue_findings
from tests.kube.accounts import user_of
from tests.kube.kueue import make, put_into_queue, say
from tests.kube.lab import Lab, Run
from tests.kube.pool import NODES, node
from tests.kube.queue_jobs import job_of

HOST, RACK = "kubernetes.io/hostname", "test.disttrain.dev/place"
SECONDS = 20.0


def queue_with(lab: Lab, namespace: str, owner: str, *levels: str) -> dict[str, str]:
    """Make a queue whose flavor has a topology of these levels, or none.

    Return the fields of the tasks about this queue.
    """
    whole = f"{namespace}-gpus"
    name = f"{whole}-{len(levels)}"
    labels = {"labels": {OWNER_LABEL: owner}}

    def item(kind: str, name: str, spec: Json) -> Json:
        return {"kind": kind, "metadata": {**labels, "name": name}, "spec": spec}

    topology = {"levels": [{"nodeLabel": level} for level in levels]}
    if levels:
        make(lab, "topologies", item("Topology", name, topology))
    spec = {"topologyName": name, "nodeLabels": {"kubernetes.io/os": "linux"}} if levels else {}
    make(lab, "resourceflavors", item("ResourceFlavor", name, spec))
    resources = [{"name": "cpu", "nominalQuota": "1"}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": resources}]}
    make(lab, "clusterqueues", item("ClusterQueue", whole, {"resourceGroups": [group]}))
    make(lab, "localqueues", item("LocalQueue", "gpus", {"clusterQueue": whole}), namespace)
    return {"queue": "gpus", "cluster_queue": whole, **({"topology": name} if levels else {})}


def problems(lab: Lab, namespace: str, place: str, *comes: str) -> list[str]:
    """Return the problems of a run that wants its pods in one place of this label."""
    return queue_findings(lab.api, namespace, "gpus", "", comes, level=place).problems


def test_queue_that_does_not_know_the_place_is_refused(kueue: Lab, tmp_path: Path) -> None:
    lab, namespace = kueue, kueue.namespace()
    queue_with(lab, namespace, "theirs", RACK, HOST)
    assert problems(lab, namespace, RACK) == problems(lab, namespace, HOST) == []
    (wrong,) = problems(lab, namespace, "example.com/row")
    assert wrong.startswith("placementLabel: 'example.com/row' cannot be used: it is no level")
    assert f"Set one of {RACK}, {HOST}" in wrong
    assert problems(lab, namespace, "example.com/row", "localqueues/gpus") == []
    plain = lab.namespace()
    queue_with(lab, plain, "theirs")
    (without,) = problems(lab, plain, RACK)
    assert without.startswith("placement: 'one-place' cannot be used: queue gpus has no topology")
    somebody = user_of(lab, namespace, tmp_path, "view")
    assert queue_findings(somebody, namespace, "gpus", level=RACK).problems == []


def test_topology_does_not_change_under_a_run_that_has_its_place(kueue: Lab) -> None:
    """`up` refuses another topology for a queue while a run has its place by the present one.

    Otherwise Kueue would forget what the run uses, and give it away a second time.
    """
    lab = kueue
    run = Run(lab, lab.namespace(), "dev")
    fields = queue_with(lab, run.namespace, run.owner, RACK, HOST)
    other = {**fields, "topology": f"{fields['cluster_queue']}-other"}
    none = {key: value for key, value in fields.items() if key != "topology"}
    workload = put_into_queue(run, "waits")
    jobs = [job_of(lab, run.namespace, run.owner, **each) for each in (fields, other, none)]
    for job in jobs:
        claim_queues.create(job, lab.api)
    say(lab, workload, "QuotaReserved", "True", "has its place")
    claim_queues.create(jobs[0], lab.api)
    for job in jobs[1:]:
        with pytest.raises(TaskError, match=f"Workload job-{run.name} has its place by the one of"):
            claim_queues.create(job, lab.api)


def test_topology_goes_with_its_queue_alone(kueue: Lab) -> None:
    lab, namespace = kueue, kueue.namespace()
    fields = queue_with(lab, namespace, "ours", RACK, HOST)
    path = f"/apis/kueue.x-k8s.io/v1beta2/topologies/{fields['topology']}"
    theirs = job_of(lab, namespace, "theirs", **fields)
    open_queue.delete(theirs, lab.api)
    assert lab.api.get(path)
    with pytest.raises(TaskError, match="exists on the cluster and belongs to another stack"):
        claim_queues.create(theirs, lab.api)
    open_queue.delete(job_of(lab, namespace, "ours", **fields), lab.api)
    assert lab.api.get(path) is None


@pytest.fixture
def nodes(kueue: Lab) -> Iterator[list[str]]:
    """Yield the paths of two nodes with a label that no other node has."""
    pool, made = uuid.uuid4().hex[:8], list[str]()
    try:
        for _ in range(2):
            item = node(pool, {"cpu": "3", "memory": "4Gi", "pods": "110"})
            item["metadata"]["labels"] |= {RACK: "a", HOST: item["metadata"]["name"]}
            kueue.api.create(NODES, item)
            made.append(f"{NODES}/{item['metadata']['name']}")
        yield made
    finally:
        for path in made:
            kueue.api.delete(path, {})


def test_nodes_are_asked_for_the_labels_of_the_levels(kueue: Lab, nodes: list[str]) -> None:
    """The quota of a queue with a topology counts only nodes that have the labels of all levels.

    Nodes without them are named, and it is an error if no node has them, unless the cluster grows.
    """
    wanted = QueuesWanted("gpus", ("cpu",), (RACK, HOST))
    seen = read_queues(kueue.access(), SECONDS, wanted)
    assert seen.offered == {"cpu": "6"}
    (note,) = seen.notes
    assert "will not use" in note
    kueue.api.patch(nodes[0], {"metadata": {"labels": {RACK: None}}})
    seen = read_queues(kueue.access(), SECONDS, wanted)
    assert seen.offered == {"cpu": "3"}
    assert nodes[0].rpartition("/")[2] in seen.notes[0]
    kueue.api.patch(nodes[1], {"metadata": {"labels": {RACK: None}}})
    with pytest.raises(TaskError, match=f"'{RACK}' cannot be used: no node has this label"):
        read_queues(kueue.access(), SECONDS, wanted)
    grows = QueuesWanted("gpus", ("cpu",), (RACK, HOST), grows=True)
    assert read_queues(kueue.access(), SECONDS, grows).notes == ()
