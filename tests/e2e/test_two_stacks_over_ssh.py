"""Two stacks on a GPU machine that is reached by SSH, as in the README, with one GPU Operator.

k3s and the GPU Operator are stand-ins (remote_node.py, tests/operator/README.md). The engine, SSH,
sudo, systemd, the tunnel, Kubernetes, Helm's release and the device plugin's socket are real. The
tests build on each other in file order.
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
# The trainer finds no CUDA on these GPUs, so it is told to use what is there. The three ranks ask
# for less CPU and memory than by default, because the defaults are for real GPU machines.
WHAT_IS_THERE = {
    "run.train.device": "auto",
    "run.train.backend": "auto",
    "cpuPerRank": "100m",
    "memoryPerRank": "256Mi",
}


@pytest.fixture(scope="module")
def chart(lab: Lab) -> Path:
    """Put the operator's image into the cluster, and return the folder of its chart."""
    import_operator_image(lab)
    return operator_chart(lab.scratch / "two-stacks-chart")


@pytest.fixture(scope="module")
def dev(remote: RemoteNode, chart: Path) -> Stack:
    """Return a stack that is up and owns its platform, with one pod that has all GPUs."""
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
    """Return a stack on the platform of `dev`, with three pods that have one GPU each; it is not
    up.
    """
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
    """The platform's GPU Operator offers all GPUs, and the training pod of the first stack has
    them.
    """
    assert offered(lab) == GPUS
    (pod,) = training_pods(lab, dev)
    limits = lab.get(pod)["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": str(GPUS)}
    wait_for("some steps", lambda: len(lab.losses(LONG)) > 20, 120)


def test_second_stack_takes_the_gpus_after_the_first_has_saved(
    lab: Lab, dev: Stack, multipod: Stack
) -> None:
    """`up` of a second stack lets the first run save, suspends it, and trains on the same GPUs.

    It uses the GPU Operator of the first stack. A second release of that name would be refused by
    Helm.
    """
    multipod.preview()
    output = multipod.up()
    assert "is asked to save, and is suspended" in output
    assert training_pods(lab, dev) == []
    assert len(training_pods(lab, multipod)) == GPUS
    assert lab.wait_done(SHORT)["step"] == 40
    # Three ranks in three pods and three ranks in one pod see the same samples.
    first, second = lab.losses(LONG), lab.losses(SHORT)
    assert second[1] == pytest.approx(first[1], rel=1e-5)


def test_switching_back_goes_on_where_the_run_had_saved(
    lab: Lab, dev: Stack, multipod: Stack
) -> None:
    """`up` of the first stack resumes its run where it has saved: no step is lost or made twice."""
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
    """`destroy` of the platform is refused, and deletes nothing, while the other stack has a run on
    it.

    Otherwise k3s would be uninstalled under that run.
    """
    before = lab.uids("job", "statefulset", "persistentvolumeclaim", "configmap")
    with pytest.raises(PulumiFailedError, match=rf"pulumi destroy --stack \S*{multipod.name}"):
        dev.destroy()
    assert lab.uids("job", "statefulset", "persistentvolumeclaim", "configmap") == before
    assert remote.host.try_shell("systemctl is-active k3s").returncode == 0
    assert training_pods(lab, dev)


def test_run_and_then_platform_go_and_leave_the_data(
    lab: Lab, remote: RemoteNode, dev: Stack, multipod: Stack
) -> None:
    """`destroy` of the run and then of the platform leaves the host as it was, except for the data.

    Neither stack has a resource left, and the platform's own run goes on when the other one is
    destroyed.
    """
    multipod.destroy()
    assert training_pods(lab, dev)  # the other run goes on
    dev.destroy()
    for stack in (dev, multipod):
        assert json.loads(stack.export())["deployment"].get("resources", []) == []
    assert remote.node.differences() == []
    assert lab.run_dir(LONG).is_dir()
    assert "disttrain" not in lab.kubectl("get", "namespace", "-o", "name")
    remote.remove_objects()
