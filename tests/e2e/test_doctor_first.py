"""`pulumi up` on a host that cannot be the node: the doctor stops it before anything is made."""

import json
from pathlib import Path

import pytest

from sandbox.stack import PulumiFailedError, Stack
from sandbox.venvs import PROJECT

GPUS = "999"  # no host has them, so that nothing is ever installed by this test
RELEASE = "v1.99.99+k3s1"  # and there is no such k3s


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
    # the next `up` looks again: a failed look is not taken for one that was passed
    with pytest.raises(PulumiFailedError) as again:
        stack.up()
    assert "gpu-device" in str(again.value)
