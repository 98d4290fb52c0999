"""Before a stack makes anything in a cluster, it asks for the rights that it needs, and for what
the cluster has to have.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pulumi
import pytest
import yaml

from infra.cluster_check import rights_problem
from infra.image.platforms import architecture_of, this_machine
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import Need, as_roles, covers
from infra.kube.pods.same_machine import boot_id
from infra.kube.runs.pods_findings import RunPods
from infra.kube.volumes.storage_findings import StorageNeeds
from infra.platform.viewers import READS
from infra.rights import ADMINISTRATOR, OBJECT, PROGRAMS, QUEUE_PROGRAMS, plural
from infra.settings.pods import LEAST_REQUESTS
from infra.workloads import WORKLOADS
from tests.unit.stacks import Deployment, RecordingMonitor, deploy, raw_settings, run_with
from tests.unit.storages.other_storages import CLASS, EXISTING, NFS

CASES: dict[str, tuple[str, dict[str, object]]] = {
    "host-path": ("sandbox", {}),
    "nfs": ("sandbox", NFS),
    "class in a namespace that exists": ("sandbox", {**CLASS, "namespaceExisting": "use"}),
    "existing claim": ("sandbox", EXISTING),
    "policy, metrics and secrets": (
        "sandbox",
        {"podPolicy": "warn", "monitoring": "existing", "topology": "multi-pod"},
    ),
    "alerts to a webhook": (
        "sandbox",
        {"monitoring": "existing", "alertWebhook": "https://hooks.example.org/1"},
    ),
    "a queue of its own": (
        "sandbox",
        {"queues": {"name": "gpus", "priorities": {"urgent": 1000}}, "topology": "indexed-job"},
    ),
    "a queue with a topology": (
        "sandbox",
        {"queues": {"name": "gpus", "topology": ["kubernetes.io/hostname"]}},
    ),
    "indexed job": ("sandbox", {"topology": "indexed-job", "lostNodes": "replace"}),
    "machines that are watched": ("sandbox", {"nodeHealth": "report"}),
    "machines that are cordoned": ("sandbox", {"nodeHealth": "cordon"}),
    "JobSet": ("sandbox", {"topology": "jobset"}),
    "TrainJob": ("sandbox", {"topology": "trainjob"}),
    "PyTorchJob": ("sandbox", {"topology": "pytorchjob"}),
    "MPIJob": ("sandbox", {"topology": "mpijob"}),
    "Job of Volcano": ("sandbox", {"topology": "volcano"}),
    "LeaderWorkerSet": ("sandbox", {"topology": "lws"}),
    "platform alone": ("sandbox", {"topology": "none"}),
    "registry with a login": (
        "sandbox",
        {
            "imageDelivery": "registry",
            "imageRepository": "registry.example.org/team/trainer",
            "imageDeliveryOptions": '{"user": "me", "password": "sekret"}',
        },
    ),
}


def asked_of(stack: str, scratch: Path, changes: dict[str, object]) -> tuple[set[Need], Deployment]:
    """Return the rights that the program asks for, and what it registers after that."""
    asked: list[set[Need]] = []

    def ask(access: object, volume: StorageNeeds, needs: Iterable[Need], *_: object) -> Findings:
        asked.append(set(needs))
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        result = deploy(stack, scratch, changes, ["imageDeliveryOptions", "alertWebhook"])
    (needs,) = asked
    return needs, result


def registered(result: Deployment) -> set[tuple[str, str, bool]]:
    """Return the API group, the kind in lower case, and whether it is in a namespace, of each
    Kubernetes object that was registered.
    """
    found: set[tuple[str, str, bool]] = set()
    for resource in result.resources:
        if resource.type.startswith("kubernetes:"):
            _, api_version, kind = resource.type.split(":")
            group = api_version.partition("/")[0].removeprefix("core")
            inside = bool(resource.inputs["metadata"].get("namespace"))
            found.add((group, kind.lower(), inside))
    return found


def singular(resource: str) -> str:
    """Return the kind in lower case of a resource name, such as `job` of `jobs`."""
    for ending, replaced in (("ies", "ys"), ("classes", "classs")):
        resource = resource.replace(ending, replaced)
    return resource.removesuffix("s")


@pytest.mark.parametrize(("stack", "changes"), CASES.values(), ids=CASES)
def test_rights_asked_for_are_those_of_the_registered_objects(
    tmp_path: Path, stack: str, changes: dict[str, object]
) -> None:
    """The program asks for rights to exactly the kinds of objects that it registers. If one were
    left out, the API server would refuse it in the middle of `up`.
    """
    needs, result = asked_of(stack, tmp_path, changes)
    beside = {(group, resource) for group, resource, _ in PROGRAMS}
    of_objects = {
        (need.group, singular(need.resource), bool(inside))
        for need in needs
        for inside in [need.namespace]
        if need.verb == "patch" and not (inside and (need.group, need.resource) == ("", "pods"))
    }
    assert of_objects == registered(result)
    for group, resource in beside:
        assert any((need.group, need.resource) == (group, resource) for need in needs)
    assert {need.verb for need in needs if need.resource == "secrets"} == set(OBJECT)
    assert {need.namespace for need in needs} <= {"", "disttrain"}


def test_platform_that_makes_a_queue_may_see_what_stands_in_it(tmp_path: Path) -> None:
    """A platform that makes a queue also asks for the right to read Kueue's Workloads in its
    namespace.
    """
    changes: dict[str, object] = {"topology": "none"}
    without, _ = asked_of("sandbox", tmp_path, changes)
    making, _ = asked_of("sandbox", tmp_path, {**changes, "queues": {"name": "gpus"}})
    of_workloads = {need for need in making - without if need.resource == "workloads"}
    assert of_workloads == {
        Need("kueue.x-k8s.io", "workloads", verb, "disttrain") for verb in ("get", "list")
    }


def test_platform_that_installs_controllers_needs_an_administrator(tmp_path: Path) -> None:
    """A platform that installs controllers asks for the rights of an administrator, because their
    charts contain rights that only an administrator may give.
    """
    without, _ = asked_of("sandbox", tmp_path, {})
    needs, _ = asked_of("sandbox", tmp_path, {"controllers": ["jobset"]})
    assert needs - without == {ADMINISTRATOR}
    said = rights_problem([ADMINISTRATOR], "disttrain")
    assert "remove controllers that it has, or use an administrator's kubeconfig" in said


def test_run_in_a_queue_may_read_and_stop_its_workload_there(tmp_path: Path) -> None:
    """A run with the setting `queue` asks for the rights to read and stop it by Kueue's Workload. A
    run without the setting does not ask for them.
    """
    wanted = {
        Need(group, resource, verb, "disttrain")
        for group, resource, verbs in QUEUE_PROGRAMS
        for verb in verbs
    }
    assert wanted
    changes: dict[str, object] = {"topology": "indexed-job"}
    without, _ = asked_of("sandbox", tmp_path, changes)
    queued, _ = asked_of("sandbox", tmp_path, {**changes, "queue": "team"})
    assert queued - without == wanted


def test_run_under_volcano_may_give_commands(tmp_path: Path) -> None:
    """A run under Volcano asks for the rights to make Volcano's commands, which stop and resume the
    run, and to read the PodGroup, which says what the run waits for.
    """
    changes: dict[str, object] = {"topology": "volcano"}
    needs, _ = asked_of("sandbox", tmp_path, changes)
    commands = {need.verb for need in needs if need.resource == "commands"}
    groups = {need.verb for need in needs if need.resource == "podgroups"}
    assert (commands, groups) == ({"create", "delete", "get"}, {"get"})


def test_namespace_that_exists_needs_no_right_beyond_it(tmp_path: Path) -> None:
    """A stack that uses an existing namespace asks for rights in this namespace only, and for none
    of the whole cluster.
    """
    for changes in ({**CLASS, "namespaceExisting": "use"}, EXISTING):
        needs, _ = asked_of("sandbox", tmp_path, changes)
        assert {need.namespace for need in needs} == {"disttrain"}


def pods_asked_about(
    stack: str, scratch: Path, changes: dict[str, object], before: Deployment | None = None
) -> RunPods:
    """Return the pods about which the program asks the cluster before it makes anything."""
    found: list[RunPods] = []

    def ask(_: object, __: object, ___: object, pods: RunPods, *____: object) -> Findings:
        found.append(pods)
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        deploy(stack, scratch, changes, ["imageDeliveryOptions"], before)
    (pods,) = found
    return pods


def test_cluster_is_asked_about_the_pods_of_the_run(tmp_path: Path) -> None:
    """The cluster is asked about pods with the settings that the workload will have, such as node
    selector and requests. If the stack installs the GPU Operator, missing GPUs are no problem yet.
    """
    placed = {"nodeSelector": {"pool": "a"}, "priorityClass": "high", "cpuPerRank": "2"}
    limits = {"cpuLimitPerRank": "3"}
    pods = pods_asked_about("sandbox", tmp_path, {**placed, **limits, "processesPerPod": 3})
    assert pods.dataset_resources == {"requests": LEAST_REQUESTS, "limits": {"cpu": "9"}}
    spec = pods.pod["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"pool": "a"}, "high")
    assert spec["containers"][0]["resources"]["requests"]["cpu"] == "6"
    assert (pods.namespace, pods.pods, pods.grows, pods.without) == ("disttrain", 1, False, ())
    gpus = {"accelerator": "gpu", "gpus": 2, "gpusPerPod": 2, "processesPerPod": 1}
    gpus["clusterGrows"] = True
    own = pods_asked_about("sandbox", tmp_path, {**gpus, "gpuOperator": True})
    assert (own.grows, own.without) == (True, ("nvidia.com/gpu",))
    assert pods_asked_about("sandbox", tmp_path, {**gpus, "gpuOperator": False}).without == ()


def test_cluster_is_asked_for_what_is_here_alone(tmp_path: Path) -> None:
    """The check before `up` gets the things that only this machine has: an unshared folder and an
    imported image. It also gets whether the stack makes the volume itself, which then need not
    exist.
    """

    def alone(**changes: object) -> tuple[list[str], bool, str]:
        pods = pods_asked_about("sandbox", tmp_path, changes)
        assert pods.here == boot_id() != ""
        settings = [thing.setting for thing in pods.only_here]
        return settings, pods.makes_volume, pods.class_name

    folder, image = "storage: 'host-path'", "imageDelivery: 'import'"
    assert alone() == ([folder, image], True, "")
    assert alone(storageOptions={"shared": True}) == ([image], True, "")
    registry = {"imageDelivery": "registry", "imageRepository": "registry.example.org/trainer"}
    assert alone(**registry) == ([folder], True, "")
    disks = {"storage": "storage-class", "storageOptions": {"className": "disks"}}
    assert alone(**registry, **disks) == ([], False, "disks")


def test_processors_of_a_build_are_asked(tmp_path: Path) -> None:
    """The check before `up` gets the kind of processor for which an image would be built here. It
    gets none for an image that is in the registry already, from whatever machine, and none if the
    image is imported, because then this machine is the node.
    """
    registry: dict[str, object] = {"imageDelivery": "registry"}
    registry["imageRepository"] = "registry.example.org/trainer"
    assert pods_asked_about("sandbox", tmp_path, {}).built_for == ""
    here = architecture_of(this_machine())
    assert pods_asked_about("sandbox", tmp_path, registry).built_for == here
    first = deploy("sandbox", tmp_path, registry)
    assert pods_asked_about("sandbox", tmp_path, registry, first).built_for == ""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    program: dict[str, object] = {"program": {"command": ["python"], "build": str(folder)}}
    program |= {"datasetFile": "", "preset": "shakespeare-char"}
    pods = pods_asked_about("sandbox", tmp_path, {**registry, **program}, first)
    assert pods.built_for == here


def test_processors_of_an_own_image_are_asked(tmp_path: Path) -> None:
    """A run on the platform of another stack gets the kind of processor for the image of its own
    program, and none without such an image, because it builds none then.
    """
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    registry: dict[str, object] = {"imageDelivery": "registry"}
    registry["imageRepository"] = "registry.example.org/trainer"
    outputs = deploy("sandbox", tmp_path, registry).outputs
    found: list[RunPods] = []

    def ask(_: object, __: object, ___: object, pods: RunPods, *____: object) -> Findings:
        found.append(pods)
        return Findings()

    for more in ({}, {"build": str(tmp_path)}):
        program: dict[str, object] = {"program": {"command": ["python"], **more}}
        program |= {"datasetFile": "", "preset": "shakespeare-char"}
        settings = raw_settings("sandbox-multipod", program)
        with patch("tests.unit.stacks.ANSWER", ask):
            run_with(RecordingMonitor(outputs), "sandbox-multipod", settings)
    here = architecture_of(this_machine())
    assert [pods.built_for for pods in found] == ["", here]


def test_pull_secret_of_the_stack_comes(tmp_path: Path) -> None:
    """The check before `up` gets the name of a pull Secret that the stack makes of a login. One
    that somebody else has made has to exist.
    """
    registry: dict[str, object] = {"imageDelivery": "registry"}
    registry["imageRepository"] = "registry.example.org/trainer"
    login = {"imageDeliveryOptions": '{"user": "me", "password": "sekret"}'}
    assert pods_asked_about("sandbox", tmp_path, {**registry, **login}).secrets_come == (
        "image-registry",
    )
    theirs = {"imageDeliveryOptions": '{"pullSecret": "login"}'}
    assert pods_asked_about("sandbox", tmp_path, {**registry, **theirs}).secrets_come == ()


def test_cluster_of_an_own_k3s_is_not_asked(tmp_path: Path) -> None:
    """No cluster is asked if the stack, or its platform, installs k3s itself: before the first
    `pulumi up` there is no cluster.
    """

    def ask(*_: Any) -> Findings:
        raise AssertionError("nobody answers")

    with patch("tests.unit.stacks.ANSWER", ask):
        deploy("dev", tmp_path)
        deploy("multipod", tmp_path)


def test_what_the_cluster_lacks_is_said_before_anything_is_made(tmp_path: Path) -> None:
    """`up` fails with everything that the cluster lacks, and says that nothing was made. `deploy`
    checks that this is so.
    """
    with (
        patch("tests.unit.stacks.ANSWER", lambda *_: Findings(["first", "second"], ["by the way"])),
        pytest.raises(pulumi.RunError) as refused,
    ):
        deploy("sandbox", tmp_path)
    assert "nothing was made:\n  - first\n  - second" in str(refused.value)


def test_rule_for_one_name_alone_is_no_right_to_the_kind() -> None:
    """A rule gives a right only if its group, resource and verb fit, and if it is not restricted to
    objects of certain names.
    """
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    need = Need("", "pods", "get", "n")
    assert covers([rule], need)
    assert covers([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], need)
    assert not covers([{**rule, "resourceNames": ["one"]}], need)
    assert not covers([rule], Need("", "pods/log", "get", "n"))
    assert not covers([rule], Need("", "pods", "list", "n"))
    assert not covers([rule], Need("apps", "pods", "get", "n"))


def test_missing_rights_are_said_as_roles_to_paste() -> None:
    """The message about missing rights has a Role and a ClusterRole to paste, with one rule for
    resources of the same verbs. It names the setting that makes a right of the whole cluster
    unnecessary.
    """
    needs = [
        Need("", "pods", "get", "team"),
        Need("", "pods", "create", "team"),
        Need("", "secrets", "create", "team"),
        Need("", "secrets", "get", "team"),
        Need("", "namespaces", "create", ""),
    ]
    role, cluster_role = yaml.safe_load_all(as_roles(needs, "team-trains"))
    assert role["kind"] == "Role"
    assert role["metadata"] == {"name": "team-trains", "namespace": "team"}
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["create", "get"]}
    ]
    assert cluster_role["kind"] == "ClusterRole"
    assert cluster_role["rules"][0]["resources"] == ["namespaces"]
    assert "namespaceExisting: use" in rights_problem(needs, "team")
    assert "namespaceExisting" not in rights_problem(needs[:4], "team")
    assert "gpuOperator: false" in rights_problem([*needs, ADMINISTRATOR], "team")


@pytest.mark.parametrize("name", WORKLOADS)
def test_viewers_may_look_at_workloads_of_every_kind(name: str) -> None:
    """The role for viewers may read the workloads of every topology. Otherwise `./disttrain status`
    would fail for viewers.
    """
    kind = WORKLOADS[name]
    assert plural(kind.kind) in READS[kind.api_version.rpartition("/")[0]]


def test_viewers_may_look_at_the_deployments_of_controllers() -> None:
    """The role for viewers may list Deployments. Otherwise `./disttrain status` would not tell
    viewers that a controller is down.
    """
    assert plural("Deployment") in READS["apps"]
