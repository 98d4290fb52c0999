"""The platform watches the health of its machines, and gives up the pods of lost machines."""

from pathlib import Path

import pytest

from tests.unit.platform.machines import TWO, before, deployed
from tests.unit.stacks import Deployment, deploy


def test_pods_of_lost_machines_are_given_up_where_there_are_several(tmp_path: Path) -> None:
    """A platform with several machines has a pod that gives up the pods of lost machines. This pod
    starts with the platform's image and with an account that may only list, mark and delete pods.
    """
    assert not [r for r in deployed(tmp_path).resources if r.name.startswith("lost-nodes")]
    result = deployed(tmp_path, TWO)
    first = before(result, "lost-nodes-deployment")
    assert {"lost-nodes-role-binding", "lost-nodes-program"} <= first
    assert [name for name in first if name.startswith("image-")]
    spec = result.one("lost-nodes-deployment").inputs["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"].startswith("registry.example.org/team/trainer:")
    program = result.one("lost-nodes-program").inputs
    assert container["command"][-1].split(".")[-1] + ".py" in program["data"]
    assert program["metadata"]["name"] == spec["volumes"][0]["configMap"]["name"]
    rules = result.one("lost-nodes-role").inputs["rules"]
    assert {rule["resources"][0]: rule["verbs"] for rule in rules} == {
        "pods": ["list", "delete"],
        "pods/status": ["patch"],
    }


def watch_of(result: Deployment) -> tuple[bool, set[str]]:
    """Return whether the pods that watch the machines cordon them, and what their account may
    change.
    """
    (container,) = result.one("node-health-daemon-set").inputs["spec"]["template"]["spec"][
        "containers"
    ]
    roles = [
        r for r in result.resources if r.name.startswith("node-health-") and "rules" in r.inputs
    ]
    rules = [rule for role in roles for rule in role.inputs["rules"]]
    may = {rule["resources"][0] for rule in rules if {"patch", "create"} & set(rule["verbs"])}
    return "--cordon" in container["command"], may


def test_machines_are_watched_and_cordoned_where_others_can_take_the_work(tmp_path: Path) -> None:
    """Machines are watched, and are cordoned if there are several, unless `nodeHealth` says
    otherwise. On a single machine a cordon would only end the training. An existing cluster is left
    alone.
    """
    assert watch_of(deployed(tmp_path)) == (False, {"pods/status"})
    all_of_it = {"pods/status", "pods/eviction", "nodes"}
    assert watch_of(deployed(tmp_path, TWO)) == (True, all_of_it)
    assert watch_of(deployed(tmp_path, nodeHealth="cordon")) == (True, all_of_it)
    assert watch_of(deployed(tmp_path, TWO, nodeHealth="report")) == (False, {"pods/status"})
    for none in (deployed(tmp_path, TWO, nodeHealth="off"), deploy("sandbox", tmp_path)):
        assert not [r for r in none.resources if r.name.startswith("node-health")]


def test_pods_that_watch_see_the_gpus_and_run_where_these_are(tmp_path: Path) -> None:
    """The pods that watch use the runtime class nvidia, which shows them the GPUs, and run on
    machines with GPUs. Without GPUs they need neither.
    """
    spec = deployed(tmp_path).one("node-health-daemon-set").inputs["spec"]["template"]["spec"]
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    plain = deploy("sandbox", tmp_path, {"nodeHealth": "report"}).one("node-health-daemon-set")
    spec = plain.inputs["spec"]["template"]["spec"]
    assert {"runtimeClassName", "nodeSelector"} & set(spec) == set()


def test_pods_that_watch_have_limits_too(tmp_path: Path) -> None:
    """The platform's own pods have limits. A namespace whose quota demands limits would refuse them
    otherwise, and nobody would be told.
    """
    result = deployed(tmp_path, TWO)
    for name in ("lost-nodes-deployment", "node-health-daemon-set"):
        (container,) = result.one(name).inputs["spec"]["template"]["spec"]["containers"]
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}


DEMANDED = {
    "podLabels": {"team": "ml", "sidecar.istio.io/inject": ""},
    "podAnnotations": {
        "cost-center": "7",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "",
    },
    "podUser": 1000680000,
}


@pytest.mark.parametrize("topology", ["single-pod", "none"])
def test_pods_that_watch_have_what_the_namespace_demands(tmp_path: Path, topology: str) -> None:
    """Those of lostNodes and nodeHealth have podLabels and podAnnotations, also without a run.

    The pod of lostNodes runs as podUser. Those of nodeHealth stay root, or they could not read the
    kernel's log.
    """
    watching = {"lostNodes": "replace", "nodeHealth": "report", "topology": topology}
    usual, made = (deploy("sandbox", tmp_path, {**watching, **each}) for each in ({}, DEMANDED))
    users: list[tuple[int, int]] = []
    for name in ("lost-nodes-deployment", "node-health-daemon-set"):
        template = made.one(name).inputs["spec"]["template"]
        before_it = usual.one(name).inputs["spec"]["template"]["metadata"]
        labels, annotations = template["metadata"]["labels"], template["metadata"]["annotations"]
        assert labels == {**before_it["labels"], "team": "ml"}
        assert annotations == {**before_it["annotations"], "cost-center": "7"}
        security = template["spec"]["securityContext"]
        users.append((security["runAsUser"], security["runAsGroup"]))
        assert security.get("fsGroup", 0) == security["runAsGroup"]
    assert users == [(1000680000, 1000680000), (0, 0)]
