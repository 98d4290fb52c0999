"""In which order the engine makes the resources."""

import json
from pathlib import Path

from tests.unit.program.parts import everything_before
from tests.unit.program.resources import COMPONENTS, OWNERS
from tests.unit.stacks import Deployment, deploy


def test_nothing_starts_before_what_it_needs(deployment: tuple[str, Deployment]) -> None:
    """The training starts after the data set, its configuration, the image, the claim and, with
    GPUs, the operator.
    """
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
    """The provider does not wait for the training, which a command of this program does, but it
    waits for the Job of the data set.
    """
    stack, result = deployment
    workload = "training-stateful-set" if "multi" in stack else "training-job"
    assert result.one(workload).inputs["metadata"]["annotations"]["pulumi.com/skipAwait"] == "true"
    dataset = result.one("dataset-job").inputs["metadata"]["annotations"]
    assert dataset["pulumi.com/replaceUnready"] == "true"
    assert "pulumi.com/skipAwait" not in dataset
    uid = result.one(workload).name
    assert json.loads(result.one("training-await").program)["uid"] == f"uid-of-{uid}"


def test_cluster_of_another_machine_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """With an existing cluster, the check whether it is on this machine comes before everything
    else. Otherwise the data folder and the image would be made here, and the pods would fail
    elsewhere. tests/kube/test_same_machine.py tries the check.
    """
    result = deploy("sandbox", tmp_path)
    made = [r for r in result.resources if r.type not in COMPONENTS]
    look = {"owner-identity", "same-machine-look"}
    for resource in made:
        if resource.name not in {*look, "run-key-random"}:
            assert "same-machine-look" in everything_before(result, resource), resource.name


def test_copies_of_the_kubeconfig_are_removed_after_the_provider(tmp_path: Path) -> None:
    """The removal of the kubeconfig's copies is registered before the provider, so it comes after
    it at `destroy`. The provider makes a copy as soon as it starts, even in an `up` that is killed.
    tests/sandbox/test_kubeconfig_copies.py kills one.
    """
    result = deploy("dev", tmp_path)
    (provider,) = result.of_type("pulumi:providers:kubernetes")
    assert {"cluster-copies", "cluster-kubeconfig"} <= everything_before(result, provider)
    copies = result.one("cluster-copies")
    assert copies.inputs["delete"].endswith("-m infra.kube copies delete")
    run = deploy("multipod", tmp_path)  # a run on the platform of another stack
    (provider,) = run.of_type("pulumi:providers:kubernetes")
    assert "task-pods-leftovers" in everything_before(run, provider)
    existing = deploy("sandbox", tmp_path)  # its kubeconfig is a file of the user's own
    assert "cluster-copies" not in [each.name for each in existing.resources]


def test_controllers_come_after_the_gpu_operator(tmp_path: Path) -> None:
    """Controllers are installed after the wait for the GPU Operator. Its toolkit restarts
    containerd, and k3s with it, so that no API answers for a while, and Helm and the provider would
    give up.
    """
    result = deploy("dev", tmp_path, {"controllers": ["jobset", "kueue"]})
    for name in ("controller-jobset", "controller-kueue"):
        (component,) = [each for each in result.resources if each.name == name]
        made = [each for each in result.resources if each.request.parent == component.urn]
        assert made
        for resource in made:
            assert "gpu-operator-await" in everything_before(result, resource), resource.name
