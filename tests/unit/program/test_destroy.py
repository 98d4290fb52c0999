"""What `destroy` deletes itself, what goes with the cluster, and what comes first."""

import json
from pathlib import Path

from tests.unit.program.parts import everything_before
from tests.unit.program.resources import COMPONENTS
from tests.unit.stacks import deploy


def test_what_lies_in_our_k3s_goes_with_it(tmp_path: Path) -> None:
    """Objects in a k3s that `destroy` removes are not deleted one by one. Otherwise `destroy` would
    ask a k3s that is gone already, and fail.

    The engine hands `deletedWith` down from a component to what is in it.
    """
    result = deploy("dev", tmp_path)
    install = result.one("cluster-k3s")
    for name in ("namespace", "data", "dataset", "training", "gpu-operator", "task-pods"):
        assert result.one(name).request.deletedWith == install.urn
    existing = deploy("sandbox", tmp_path)
    assert {r.request.deletedWith for r in existing.resources} == {""}


def test_what_lies_in_an_adopted_k3s_is_deleted_by_itself(tmp_path: Path) -> None:
    """Objects in an adopted k3s are deleted one by one, because `destroy` does not remove that
    k3s.
    """
    result = deploy("dev", tmp_path, {"k3sExisting": "adopt"})
    assert {r.request.deletedWith for r in result.resources} == {""}


def test_guard_of_destroy_is_never_skipped_and_comes_first(tmp_path: Path) -> None:
    """The guard of `destroy` is deleted, which runs it, even if k3s goes in the same `destroy`. The
    engine deletes in the reverse order of the dependencies, so the guard, which depends on
    everything else, is deleted first.
    """
    result = deploy("dev", tmp_path)
    guard = result.one("destroy-guard-look")
    assert guard.request.deletedWith == ""
    waited_for = everything_before(result, guard)
    others = {r.name for r in result.resources if r.type not in COMPONENTS} - {guard.name}
    assert others - {"training-await"} <= waited_for | {"training-await"}
    assert "training-await" in waited_for


def test_guard_of_a_run_comes_first(tmp_path: Path) -> None:
    """`destroy` of a run on another stack's platform begins with its guard, too, which depends on
    everything else. It knows the stack of the platform, for its message.
    """
    result = deploy("multipod", tmp_path)
    guard = result.one("run-guard-look")
    others = {r.name for r in result.resources if r.type not in COMPONENTS} - {guard.name}
    assert others <= everything_before(result, guard)
    assert "training-await" in others
    assert json.loads(guard.inputs["stdin"])["platform_stack"] == "dev"
    assert guard.inputs["delete"].endswith("infra.kube run-guard delete")


def test_commands_on_a_lost_cluster_stay_as_they_are(tmp_path: Path) -> None:
    """With `hostGone`, no command that asks the lost cluster runs, and the engine only forgets it.
    Otherwise `pulumi up` would wait for minutes for its answer. The removal of the kubeconfig's
    copies asks no cluster, so it runs.
    """
    result = deploy("dev", tmp_path, {"hostGone": True})
    on_cluster = [
        r
        for r in result.of_type("command:local:Command")
        if "infra.kube" in r.inputs.get("create", "") and r.name != "cluster-copies"
    ]
    assert len(on_cluster) >= 5
    for command in on_cluster:
        assert list(command.request.ignoreChanges) == ["stdin"], command.name
        assert command.request.retainOnDelete, command.name
