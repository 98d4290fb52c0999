"""What the engine makes before what."""

import json
from pathlib import Path

from tests.unit.program.parts import everything_before
from tests.unit.program.resources import COMPONENTS, OWNERS
from tests.unit.stacks import Deployment, deploy


def test_nothing_starts_before_what_it_needs(deployment: tuple[str, Deployment]) -> None:
    stack, result = deployment
    workload = "training-stateful-set" if "multi" in stack else "training-job"
    before = everything_before(result, result.one(workload))
    needed = {"dataset-job", "run-config-map", "training-hand-over"}
    if stack in OWNERS:
        needed |= {"proxy-config-map", "data-claim", "image-ensure"}
        assert "namespace-look" in everything_before(result, result.one("data-claim"))
    needed |= {"gpu-operator-await"} if stack == "dev" else set()
    needed |= {"dataset-upload"} if "sandbox" in stack else set()
    assert needed <= before
    assert "dataset-job" in everything_before(result, result.one("training-hand-over"))


def test_training_is_not_awaited_by_the_provider_and_the_data_set_is(
    deployment: tuple[str, Deployment],
) -> None:
    stack, result = deployment
    workload = "training-stateful-set" if "multi" in stack else "training-job"
    assert result.one(workload).inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    dataset = result.one("dataset-job").inputs["metadata"]["annotations"]
    assert dataset["pulumi.com/replaceUnready"] == "true"
    assert "pulumi.com/skipAwait" not in dataset
    uid = result.one(workload).name
    assert json.loads(result.one("training-await").program)["uid"] == f"uid-of-{uid}"


def test_cluster_of_another_machine_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """Fault 9 of the review: with `host: local` and a cluster elsewhere, the data folder and the
    image were made here and the pods failed there. tests/kube/test_same_machine.py has the look."""
    result = deploy("sandbox", tmp_path)
    made = [r for r in result.resources if r.type not in COMPONENTS]
    look = {"owner-identity", "same-machine-look"}
    for resource in made:
        if resource.name not in {*look, "run-key-random"}:
            assert "same-machine-look" in everything_before(result, resource), resource.name


def test_copies_of_the_kubeconfig_are_removed_after_the_provider(tmp_path: Path) -> None:
    """The provider makes one as soon as it starts, whatever else an `up` that is killed has made.
    tests/sandbox/test_kubeconfig_copies.py kills it."""
    result = deploy("dev", tmp_path)
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    assert {"cluster-copies", "cluster-kubeconfig"} <= everything_before(result, provider)
    copies = result.one("cluster-copies")
    assert copies.inputs["delete"].endswith("-m infra.kube copies delete")
    run = deploy("multipod", tmp_path)  # on the platform of another stack
    (provider,) = run.of_type("pulumi:providers:kubernetes")
    assert "task-pods-leftovers" in everything_before(run, provider)
    existing = deploy("sandbox", tmp_path)  # its kubeconfig is a file of the user's own
    assert "cluster-copies" not in [each.name for each in existing.resources]


def test_controllers_come_after_the_gpu_operator(tmp_path: Path) -> None:
    """Its toolkit restarts containerd and with it a k3s, so that for a while no API answers. Helm
    and the provider give up then, and so did an `up` that installed controllers beside it."""
    result = deploy("dev", tmp_path, {"controllers": ["jobset", "kueue"]})
    for name in ("controller-jobset", "controller-kueue"):
        (component,) = [each for each in result.resources if each.name == name]
        made = [each for each in result.resources if each.request.parent == component.urn]
        assert made
        for resource in made:
            assert "gpu-operator-await" in everything_before(result, resource), resource.name
