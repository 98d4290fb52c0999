"""When the GPU Operator is installed, and with which settings it is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.settings import GpuOperatorSettings
from tests.unit.settings.reading import platform, refusal
from tests.unit.stacks import files_of_this_machine


@pytest.fixture
def existing(tmp_path: Path) -> dict[str, object]:
    """Return the settings of an existing cluster with GPUs."""
    kubeconfig = files_of_this_machine("sandbox", tmp_path)["kubeconfig"]
    return {"cluster": "existing", "kubeconfig": kubeconfig}


def operator(changes: Mapping[str, object]) -> GpuOperatorSettings | None:
    """Return the settings of the GPU Operator; None if it is not installed."""
    return platform(changes).gpu_operator


def test_operator_is_not_installed_on_existing_cluster(existing: dict[str, object]) -> None:
    """By default the operator is installed on a k3s of this stack, but not on an existing cluster,
    whose administrators may run one of their own.
    """
    assert operator(existing) is None
    assert operator({}) is not None


def test_operator_is_installed_where_it_is_asked_for(existing: dict[str, object]) -> None:
    """The setting `gpuOperator` decides on either kind of cluster."""
    assert operator({**existing, "gpuOperator": True}) is not None
    assert operator({"gpuOperator": False}) is None


def test_a_platform_on_cpu_may_say_that_it_has_no_gpus() -> None:
    """`gpus: 0` goes with `accelerator: cpu`, and no platform with GPUs has none."""
    assert platform({"accelerator": "cpu", "gpus": 0, "torchIndexUrl": ""}).devices.gpus == 0
    assert "gpus: '0' cannot be used: it is too small" in refusal({"gpus": 0})


def test_operator_without_gpus_is_refused() -> None:
    cpu = {"accelerator": "cpu", "torchIndexUrl": ""}
    assert operator(cpu) is None
    text = refusal({**cpu, "gpuOperator": True})
    assert "gpuOperator: 'true' cannot be used: accelerator is cpu" in text


@pytest.mark.parametrize("value", ["install", "yes", "aut", 1])
def test_nonsense_is_answered_with_the_choices(value: object) -> None:
    """A wrong value of `gpuOperator` is refused with the possible ones."""
    text = refusal({"gpuOperator": value})
    assert "cannot be used: gpuOperator has no such choice. Set auto, true or false" in text


def test_version_of_an_adopted_k3s_is_not_that_of_the_setting() -> None:
    """With `k3sExisting: adopt`, the setting `k3sVersion` says nothing about the k3s that is there,
    so it does not decide whether the operator can be installed.
    """
    old = {"k3sVersion": "v1.27.9+k3s1"}
    assert "containerd of this k3s is older than 2.0" in refusal(old)
    assert operator({**old, "k3sExisting": "adopt"}) is not None


def test_existing_cluster_over_ssh_is_refused(existing: dict[str, object]) -> None:
    """`host: ssh` is refused with an existing cluster. Otherwise the image would be imported on
    this machine, and the data folder made on the other one.
    """
    ssh = {"host": "ssh", "sshHost": "gpu01", "sshHostKey": "ssh-ed25519 AAAA"}
    text = refusal({**existing, **ssh})
    assert "host: 'ssh' cannot be used: with cluster: existing nothing is done by SSH" in text
    assert "Set host: local" in text


def test_k3s_without_our_operator_may_be_older() -> None:
    """Without the operator an older k3s is accepted, because only the operator depends on the
    version of k3s' containerd.
    """
    old: dict[str, object] = {"k3sVersion": "v1.30.9+k3s1"}
    assert "Set k3sVersion to one of v1.31.6, v1.32.2 or later" in refusal(old)
    for without in ({"gpuOperator": "false"}, {"accelerator": "cpu"}):
        assert platform({**old, **without}).gpu_operator is None
