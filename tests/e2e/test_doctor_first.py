"""On a host that cannot be the node, the doctor ends `pulumi up` before anything is made."""

import json
from pathlib import Path

import pytest

from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT

GPUS = "999"  # no host has so many, so this test never installs anything
RELEASE = "v1.99.99+k3s1"  # there is no such release of k3s


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    settings = tmp_path / "Pulumi.unfit.yaml"
    settings.write_text((PROJECT / "Pulumi.dev.yaml").read_text())
    stack = Stack("unfit", tmp_path / "backend", settings)
    wanted = {"gpus": GPUS, "gpusPerPod": GPUS, "k3sVersion": RELEASE, "shmSize": "64Mi"}
    for key, value in {**wanted, "dataRoot": str(tmp_path / "data")}.items():
        stack.set(key, value)
    return stack


def test_up_ends_with_evidence_and_fix_and_has_made_nothing(stack: Stack, tmp_path: Path) -> None:
    """`up` on an unfit host ends with the doctor's evidence and a fix, and has not installed k3s.

    The next `up` examines the host again. Otherwise a failed examination would count as a passed
    one.
    """
    with pytest.raises(PulumiFailedError) as failure:
        stack.up()
    output = str(failure.value)
    assert "gpu-device" in output
    assert f"{GPUS} asked for" in output
    assert "fix: " in output
    resources = json.loads(stack.export())["deployment"]["resources"]
    made = {r["urn"].rpartition("::")[2] for r in resources if r["custom"] and r.get("id")}
    assert not {"cluster-k3s", "cluster-kubeconfig", "doctor-host"} & made
    assert not (tmp_path / "data" / "runs").exists()
    # The next `up` examines the host again.
    with pytest.raises(PulumiFailedError) as again:
        stack.up()
    assert "gpu-device" in str(again.value)
