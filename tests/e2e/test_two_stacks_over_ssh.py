"""The path of the README on a GPU machine reached by SSH: two stacks, one GPU Operator, and back.

k3s and the GPU Operator are stand-ins (remote_node.py, tests/operator/README.md); the engine, SSH,
sudo, systemd, the tunnel, Kubernetes, Helm's release and the device plugin's socket are real.
The tests build on each other in file order.
"""

import json
from pathlib import Path

import pytest

from sandbox.follow import train_points
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, training_pods
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.remote_node import RemoteNode
from tests.operator.cluster import offered
from tests.operator.stand_in import GPUS, import_operator_image, operator_chart

pytestmark = pytest.mark.in_order

LONG, SHORT = "two-stacks-dev", "two-stacks-multipod"
# The trainer finds no CUDA on these GPUs, so it is told to take what is there.
# Three ranks ask for less than what a GPU machine has.
WHAT_IS_THERE = {
    "run.train.device": "auto",
    "run.train.backend": "auto",
    "cpuPerRank": "100m",
    "memoryPerRank": "256Mi",
}


@pytest.fixture(scope="module")
def chart(lab: Lab) -> Path:
    import_operator_image(lab)
    return operator_chart(lab.scratch / "two-stacks-chart")


@pytest.fixture(scope="module")
def dev(remote: RemoteNode, chart: Path) -> Stack:
    """A stack that owns its platform, with one pod that has all GPUs."""
    stack = remote.stack(
        "e2e-dev",
        {
            **run_settings(LONG, ENDLESS),
            **WHAT_IS_THERE,
            "accelerator": "gpu",
            "processesPerPod": "1",
            "gpus": str(GPUS),
            "gpusPerPod": str(GPUS),
            "gpuOperatorChart": str(chart),
            "gpuOperatorTimeoutSeconds": "300",
        },
    )
    stack.preview()
    stack.up()
    return stack


@pytest.fixture(scope="module")
def multipod(lab: Lab, dev: Stack) -> Stack:
    """A stack on the platform of `dev`, with three pods that have one GPU each."""
    settings = {
        **run_settings(SHORT, 40),
        **WHAT_IS_THERE,
        "platform": dev.name,
        "gpusPerPod": "1",
        "processesPerPod": "1",
        "pods": str(GPUS),
    }
    return lab.stack("e2e-multipod", "sandbox-multipod", settings)


def test_first_stack_has_the_gpus_and_trains(lab: Lab, dev: Stack) -> None:
    assert offered(lab) == GPUS
    (pod,) = training_pods(lab, dev)
    limits = lab.get(pod)["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": str(GPUS)}
    wait_for("some steps", lambda: len(lab.losses(LONG)) > 20, 120)


def test_second_stack_takes_the_gpus_after_the_first_has_saved(
    lab: Lab, dev: Stack, multipod: Stack
) -> None:
    """Fault 1 of the review: Helm refused the release's name, so no second stack came up."""
    multipod.preview()
    output = multipod.up()
    assert "is asked to save, and is suspended" in output
    assert training_pods(lab, dev) == []
    assert len(training_pods(lab, multipod)) == GPUS
    assert lab.wait_done(SHORT)["step"] == 40
    # three ranks in three pods, and three ranks in one, see the same samples
    first, second = lab.losses(LONG), lab.losses(SHORT)
    assert second[1] == pytest.approx(first[1], rel=1e-5)


def test_switching_back_goes_on_where_the_run_had_saved(
    lab: Lab, dev: Stack, multipod: Stack
) -> None:
    assert multipod
    saved = max(lab.losses(LONG))
    output = dev.up()
    assert "was suspended and is resumed" in output
    wait_for("further steps", lambda: max(lab.losses(LONG)) > saved, 120)
    written = [point["step"] for point in train_points(lab.run_dir(LONG))]
    assert written == list(range(1, len(written) + 1))  # none lost, none done twice
    assert set(changes(dev.up("--expect-no-changes"))) == {"unchanged"}


def test_platform_is_refused_to_go_before_the_run_on_it(
    lab: Lab, remote: RemoteNode, dev: Stack, multipod: Stack
) -> None:
    """Fault 2 of the review: k3s was uninstalled under the training of the other stack."""
    before = lab.uids("job", "statefulset", "persistentvolumeclaim", "configmap")
    with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{multipod.name}"):
        dev.destroy()
    assert lab.uids("job", "statefulset", "persistentvolumeclaim", "configmap") == before
    assert remote.host.try_shell("systemctl is-active k3s").returncode == 0
    assert training_pods(lab, dev)


def test_run_and_then_platform_go_and_leave_the_data(
    lab: Lab, remote: RemoteNode, dev: Stack, multipod: Stack
) -> None:
    """Fault 4 of the review: after one stack was destroyed, the other one was stuck."""
    multipod.destroy()
    assert training_pods(lab, dev)  # the other run goes on
    dev.destroy()
    for stack in (dev, multipod):
        assert json.loads(stack.export())["deployment"].get("resources", []) == []
    assert remote.node.differences() == []
    assert lab.run_dir(LONG).is_dir()
    assert "disttrain" not in lab.kubectl("get", "namespace", "-o", "name")
    remote.remove_objects()
