"""A GPU stack on one cluster: the operator's release, its GPUs, a run on them, and `destroy`.

A stand-in takes the operator's place (tests/operator/README.md). The trainer finds no CUDA on its
GPUs, so it is told to use what is there, and trains on the CPU. The tests of the first stack build
on each other in file order; each test after them leaves the cluster without an operator.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.doctor.command import examine
from infra.node.doctor_plan import Plan
from infra.node.expectations import Expectations
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes
from tests.e2e.lab import Lab, run_settings, wait_for
from tests.operator.cluster import (
    NAMESPACE,
    gpu_pod,
    offered,
    pod_status,
    traces,
    unscheduled,
)
from tests.operator.stand_in import GPUS, import_operator_image, operator_chart

pytestmark = pytest.mark.in_order

RUN, STEPS = "e2e-gpu", 20
WHAT_IS_THERE = {"run.train.device": "auto", "run.train.backend": "auto"}


def gpu_stack(lab: Lab, name: str, chart: Path, **more: str) -> Stack:
    """Return a stack that asks for three GPUs of this cluster, and for the operator that offers
    them.
    """
    settings = {
        **run_settings(RUN, STEPS),
        **WHAT_IS_THERE,
        "accelerator": "gpu",
        "gpuOperator": "true",  # by default the operator is installed on k3s only
        "processesPerPod": "1",
        "gpus": str(GPUS),
        "gpusPerPod": str(GPUS),
        "cpuPerRank": "100m",  # the default is for real GPU machines
        "memoryPerRank": "256Mi",
        "gpuOperatorChart": str(chart),
        "gpuOperatorTimeoutSeconds": "300",
        **more,
    }
    return lab.stack(name, "sandbox", settings)


@pytest.fixture(scope="module")
def chart(lab: Lab) -> Path:
    """Return the chart of an operator that works, and put the operator's image into the cluster."""
    import_operator_image(lab)
    return operator_chart(lab.scratch / "chart")


@pytest.fixture(scope="module")
def stack(lab: Lab, chart: Path) -> Iterator[Stack]:
    """Yield a stack that is up, with the operator and a run on its GPUs."""
    made = gpu_stack(lab, "e2e-gpu", chart)
    made.preview()  # the cluster has nothing of ours yet
    made.up()
    yield made
    made.destroy()  # again, because the test that destroys it may not have run


@pytest.fixture
def pods_of_users(lab: Lab) -> Iterator[None]:
    """Delete all pods in the namespace `default` after the test."""
    yield
    lab.kubectl("delete", "pod", "--all", "--grace-period=0", "--force", namespace="default")


def test_operator_comes_up_and_offers_the_gpus(lab: Lab, stack: Stack) -> None:
    """`up` installs the GPU Operator as a Helm release and waits until it is ready and offers the
    GPUs.
    """
    assert "gpu-operator" in json.dumps(json.loads(stack.export())["deployment"]["resources"])
    assert offered(lab) == GPUS
    (policy,) = lab.get("clusterpolicies.nvidia.com")["items"]
    assert policy["status"]["state"] == "ready"
    (secret,) = lab.get("secret", "-l", "owner=helm", namespace=NAMESPACE)["items"]
    assert secret["metadata"]["labels"]["status"] == "deployed"


def test_training_runs_on_the_gpus(lab: Lab, stack: Stack) -> None:
    """The training pod has all GPUs and trains with one rank for each."""
    assert stack
    assert lab.wait_done(RUN)["step"] == STEPS
    (pod,) = lab.get("pod", "-l", "app.kubernetes.io/component=training")["items"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(GPUS)
    assert f"1 node(s) x {GPUS} rank(s)" in lab.kubectl("logs", pod["metadata"]["name"])


@pytest.mark.usefixtures("pods_of_users")
def test_pod_gets_gpus_and_another_waits_for_them(lab: Lab, stack: Stack) -> None:
    """A pod that asks for GPUs gets them, and one for which none is left waits."""
    assert stack
    gpu_pod(lab, "reads", GPUS, "visible-devices")
    wait_for("the reader", lambda: pod_status(lab, "reads")["phase"] == "Succeeded", 300)
    devices = lab.kubectl("logs", "reads", namespace="default").strip().split(",")
    assert len(set(devices)) == GPUS
    gpu_pod(lab, "holds", GPUS, "sleep")
    wait_for("the holder", lambda: pod_status(lab, "holds")["phase"] == "Running", 300)
    gpu_pod(lab, "waits", 1, "sleep")
    message = wait_for("the scheduler", lambda: unscheduled(lab, "waits"), 300)
    assert "Insufficient nvidia.com/gpu" in message


def test_doctor_finds_gpus_and_operator_in_order(lab: Lab, stack: Stack) -> None:
    """The doctor has no complaint about the GPUs and the operator."""
    assert stack
    expect = Expectations(provision=False, gpus=GPUS, ranks=GPUS, operator=True, internet=False)
    kubectl = shlex.join(lab.cluster.kubectl)
    plan = Plan(kubeconfig=str(lab.cluster.kubeconfig), kubectl=kubectl, expect=expect)
    asked = ("gpus-allocatable", "gpu-sharing", "operator-pods", "cluster-policy")
    results = {result.id: result for result in examine(plan).results if result.id in asked}
    assert sorted(results) == sorted(asked)
    assert [result for result in results.values() if result.is_finding] == []


def test_second_up_and_refresh_change_nothing(stack: Stack) -> None:
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


@pytest.mark.in_depth
def test_changed_value_upgrades_the_release(lab: Lab, stack: Stack) -> None:
    """Another value in `gpuOperatorValues` is one upgrade of the release, which reaches the
    operator's policy. After that an unchanged `up` changes nothing.
    """
    stack.set("gpuOperatorValues.migManager.config.name", "ours")
    stack.up()
    (policy,) = lab.get("clusterpolicies.nvidia.com")["items"]
    assert policy["spec"]["migManager"]["config"]["name"] == "ours"
    (release,) = lab.get("secret", "-l", "owner=helm,status=deployed", namespace=NAMESPACE)["items"]
    assert release["metadata"]["labels"]["version"] == "2"
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.set("gpuOperatorValues", None)


def test_another_stack_is_refused_while_the_operator_is_there(
    lab: Lab, chart: Path, stack: Stack, tmp_path: Path
) -> None:
    """`up` of another stack refuses to install the operator again, and names the stack that has it.

    The message also names the settings that help. Otherwise Helm's "cannot re-use a name that is
    still in use" would be all that the user sees.
    """
    assert stack
    own = {"namespace": "e2e-gpu-other", "dataRoot": str(tmp_path / "data")}
    other = gpu_stack(lab, "e2e-gpu-other", chart, **own)
    before = lab.uids("namespace", "clusterrole")
    with pytest.raises(PulumiFailedError) as refused:
        other.up()
    said = str(refused.value)
    assert "the namespace gpu-operator belongs to the stack e2e-gpu" in said
    assert "pulumi config set platform e2e-gpu" in said
    assert "pulumi config set gpuOperator false" in said
    other.destroy()
    assert lab.uids("namespace", "clusterrole") == before
    assert offered(lab) == GPUS


def test_destroy_leaves_no_trace_of_the_operator(lab: Lab, stack: Stack) -> None:
    stack.destroy()
    assert traces(lab) == {}
    # The kubelet tells the API server a while after the device plugin's socket has gone.
    wait_for("the node to offer no GPUs", lambda: offered(lab) == 0, 300)


@pytest.fixture
def failing(lab: Lab) -> Iterator[Stack]:
    """Yield a stack whose operator never gets ready, because the image of one pod cannot be pulled.

    At the end nothing of the operator may be left.
    """
    import_operator_image(lab)
    broken = operator_chart(
        lab.scratch / "broken", reconcile_error="cannot read os-release", device_plugin="missing"
    )
    made = gpu_stack(lab, "e2e-gpu-failing", broken, gpuOperatorTimeoutSeconds="60")
    yield made
    made.destroy()
    assert traces(lab) == {}


@pytest.mark.in_depth
def test_operator_that_stays_not_ready_ends_up_with_its_words(
    lab: Lab, chart: Path, failing: Stack
) -> None:
    """If the operator does not get ready in time, `up` fails, and says what the operator waits for.

    With a chart that works, the next `up` succeeds.
    """
    with pytest.raises(PulumiFailedError) as failure:
        failing.up()
    said = str(failure.value)
    assert "the GPU Operator is not ready: waited 60 s (gpuOperatorTimeoutSeconds)" in said
    assert f"operator notReady: cannot read os-release, 0 of {GPUS} GPUs offered" in said
    assert re.search(r"nvidia-device-plugin-daemonset-\w+ \(ImagePullBackOff\)", said), said
    failing.set("gpuOperatorChart", str(chart))
    failing.set("gpuOperatorTimeoutSeconds", "300")
    failing.up()  # goes on from where it failed
    assert offered(lab) == GPUS


@pytest.mark.in_depth
def test_operator_without_its_namespace_comes_again_and_goes(lab: Lab, chart: Path) -> None:
    """After somebody has deleted the operator's namespace, `destroy` fails and advises `refresh`.

    Helm's record of the release was in that namespace. After a `refresh`, `up` installs the
    operator again, and `destroy` removes all but the parts of node feature discovery. Somebody else
    may use these, so `destroy` only names them.
    """
    stack = gpu_stack(lab, "e2e-gpu-no-namespace", chart, topology="none")
    stack.up()
    lab.kubectl("delete", "namespace", NAMESPACE)
    with pytest.raises(PulumiFailedError) as failed:
        stack.destroy()
    said = " ".join(str(failed.value).split())
    assert f"the namespace {NAMESPACE}, in which this stack has installed the GPU Operator" in said
    assert "Run `pulumi refresh`, and then `pulumi up` or `pulumi destroy`" in said
    stack.refresh()
    stack.up()
    assert offered(lab) == GPUS
    lab.kubectl("delete", "namespace", NAMESPACE)
    stack.refresh()
    said = " ".join(stack.destroy().split())
    left = traces(lab)
    assert set(left) == {"crd", "key"}
    for key in left["key"]:
        assert key.startswith(("feature.node.", "nfd.node.")), key
        lab.kubectl("label", "nodes", "--all", f"{key}-")
        lab.kubectl("annotate", "nodes", "--all", f"{key}-")
    assert f"if nobody needs them, kubectl delete crd {' '.join(left['crd'])}" in said
    lab.kubectl("delete", "crd", *left["crd"])


@pytest.fixture
def somebody_elses(lab: Lab) -> Iterator[dict[str, str]]:
    """Make a namespace gpu-operator with an object that no stack has made; yield all namespaces'
    uids.
    """
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "configmap", "theirs", namespace=NAMESPACE)
    yield lab.uids("namespace")
    lab.kubectl("delete", "namespace", NAMESPACE)


def test_operator_of_somebody_else_is_refused_and_kept(
    lab: Lab, chart: Path, somebody_elses: dict[str, str]
) -> None:
    """`up` refuses to install the operator into a namespace that no stack has made.

    `destroy` leaves that namespace and its objects. Otherwise the stack would take it over, and
    `destroy` would delete it.
    """
    stack = gpu_stack(lab, "e2e-gpu-refused", chart)
    with pytest.raises(PulumiFailedError) as refused:
        stack.up()
    said = str(refused.value)
    assert "the namespace gpu-operator exists, and no stack has made it" in said
    assert "pulumi config set gpuOperator false" in said
    stack.destroy()
    kept = lab.uids("namespace")
    assert {name: kept.get(name) for name in somebody_elses} == somebody_elses
    assert lab.get("configmap", "theirs", namespace=NAMESPACE)
