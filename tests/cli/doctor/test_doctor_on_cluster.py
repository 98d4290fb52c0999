"""The doctor on a real cluster: it finds nothing on a clean one, and each fault by its own name."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cli.check import Result
from cli.doctor.cluster_checks import CLUSTER_CHECKS
from cli.doctor.command import examine
from cli.report import Report
from infra.node.doctor_plan import Plan
from infra.node.expectations import Expectations
from infra.platform.gpu_operator_definitions import chart_definitions
from sandbox.cache import locked
from sandbox.cluster import Cluster
from sandbox.toolchain import bin_dir
from sandbox.waiting import wait_until
from tests.crds import definition
from tests.unit.run_script import run

NAME = "doctor-test"
STUCK = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "held", "namespace": "disttrain", "finalizers": ["example.org/never"]},
}
RELEASE = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "sh.helm.release.v1.gpu-operator.v1",
        "namespace": "default",
        "labels": {
            "owner": "helm",
            "name": "gpu-operator",
            "status": "pending-install",
            "version": "1",
        },
    },
}

POLICIES = "clusterpolicies.nvidia.com"
# What operator v26.3.3 showed when it could not handle a node: the state was still the old one.
FAILED_POLICY: dict[str, Any] = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "status": {
        "state": "ready",
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Error", "message": ""},
            {"type": "Error", "status": "True", "message": "failed to retrieve GPU node OS info"},
        ],
    },
}


def findings_of(report: Report) -> list[str]:
    """Return the ids of findings about the cluster. This machine may have findings of its own."""
    of_cluster = {check.id for check in CLUSTER_CHECKS}
    return [r.id for r in report.results if r.is_finding and r.id in of_cluster]


class Patient:
    """A cluster of its own, with the commands that break and mend it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def kubectl(self, *arguments: str, text: object = None) -> str:
        done = subprocess.run(
            [*self.cluster.kubectl, *arguments],
            input=json.dumps(text) if text else "",
            env=self.cluster.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def node(self) -> str:
        return self.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")

    def plan(self, **changes: object) -> Plan:
        """Return the plan of a look at the cluster, with these changes of what is expected."""
        kubectl = " ".join(self.cluster.kubectl)
        expect = Expectations(provision=False, gpus=0, operator=False, internet=False)
        return Plan(
            kubeconfig=str(self.cluster.kubeconfig),
            kubectl=kubectl,
            ctr=f"ctr --address {self.cluster.containerd_address} --namespace k8s.io",
            expect=replace(expect, **changes),  # pyright: ignore[reportArgumentType]
        )

    def findings(self, **changes: object) -> dict[str, Result]:
        """Return the findings about the cluster by the id of their check."""
        report = examine(self.plan(**changes))
        assert report.reached, report.text()
        ids = findings_of(report)
        return {result.id: result for result in report.results if result.id in ids}


@pytest.fixture(scope="module")
def patient() -> Iterator[Patient]:
    with locked(f"{NAME}-cluster"):
        cluster = Cluster(NAME, bin_dir())
        cluster.down(purge=True)
        cluster.up()
        try:
            yield Patient(cluster)
        finally:
            cluster.down(purge=True)


def stuck_namespace(patient: Patient) -> Callable[[], object]:
    """Delete a namespace that cannot go because of a finalizer; return what mends it."""
    patient.kubectl("create", "namespace", "disttrain")
    patient.kubectl("apply", "-f", "-", text=STUCK)
    patient.kubectl("delete", "namespace", "disttrain", "--wait=false")
    # a moment later the namespace's controller says why it cannot be deleted
    patient.kubectl(
        *("wait", "namespace/disttrain", "--timeout=300s"),
        "--for=condition=NamespaceContentRemaining",
    )
    release = ["-n", "disttrain", "patch", "configmap", "held", "--type=json"]
    operation = '[{"op":"remove","path":"/metadata/finalizers"}]'
    return lambda: patient.kubectl(*release, "-p", operation)


def pending_release(patient: Patient) -> Callable[[], object]:
    """Make a Helm release that was never finished; return what removes it."""
    patient.kubectl("apply", "-f", "-", text=RELEASE)
    name = RELEASE["metadata"]["name"]
    return lambda: patient.kubectl("-n", "default", "delete", "secret", name)


def node_schedulable(patient: Patient) -> Callable[[], object]:
    """Cordon the node; return what uncordons it.

    A controller adds and removes the taint that comes with it, a moment after the node has changed.
    """
    node = patient.node

    def taints() -> str:
        return patient.kubectl("get", "node", node, "-o", "jsonpath={.spec.taints}")

    def heal() -> None:
        patient.kubectl("uncordon", node)
        wait_until("the taint to go", lambda: taints() or None, timeout_seconds=300)

    patient.kubectl("cordon", node)
    wait_until("the taint", lambda: None if taints() else "none", timeout_seconds=300)
    return heal


def kubeconfig(patient: Patient) -> Callable[[], object]:
    """Make the kubeconfig readable for everybody; return what mends it."""
    file = patient.cluster.kubeconfig
    file.chmod(0o644)
    return lambda: file.chmod(0o600)


def controllers(patient: Patient) -> Callable[[], object]:
    """Make a Deployment with Kueue's labels and without a pod; return what removes it."""
    inside = ("-n", "default")
    patient.kubectl(*inside, "create", "deployment", "kueue", "--image=none", "--replicas=0")
    labels = ("app.kubernetes.io/name=kueue", "control-plane=controller-manager")
    patient.kubectl(*inside, "label", "deployment", "kueue", *labels)
    return lambda: patient.kubectl(*inside, "delete", "deployment", "kueue")


WORDS = {
    "stuck-namespace": (stuck_namespace, "finalizers"),
    "pending-release": (pending_release, "gpu-operator is pending-install"),
    "node-schedulable": (node_schedulable, "is cordoned"),
    "kubeconfig": (kubeconfig, "has mode 644"),
    "controllers": (controllers, "Deployment kueue in namespace default has no available pod"),
}


def test_clean_cluster_has_no_finding(patient: Patient) -> None:
    assert patient.findings() == {}


@pytest.mark.parametrize("check_id", WORDS)
def test_fault_of_a_real_cluster_is_named_alone_and_gone_when_mended(
    patient: Patient, check_id: str
) -> None:
    """Each fault of a real cluster is the only finding, and there is none once it is mended."""
    hurt, words = WORDS[check_id]
    heal = hurt(patient)
    try:
        found = patient.findings()
    finally:
        heal()
    assert list(found) == [check_id]
    assert words in found[check_id].evidence
    if check_id == "stuck-namespace":
        patient.kubectl("wait", "--for=delete", "namespace/disttrain", "--timeout=300s")
    assert patient.findings() == {}


def test_image_that_containerd_lacks_is_named(patient: Patient) -> None:
    found = patient.findings(image="localhost/disttrain/trainer:none")
    assert list(found) == ["image-present"]


def test_labels_that_no_node_has_are_named(patient: Patient) -> None:
    """Labels of the setting `nodeSelector` that no node has are a finding. A label that the node
    has is none.
    """
    found = patient.findings(node_selector=("disttrain.dev/kind=none",))
    assert list(found) == ["node-schedulable"]
    assert "labels of nodeSelector (disttrain.dev/kind=none)" in found["node-schedulable"].evidence
    assert patient.findings(node_selector=("kubernetes.io/os=linux",)) == {}


def test_missing_gpus_are_named_by_what_the_node_offers(patient: Patient) -> None:
    """GPUs that no node offers to Kubernetes are a finding."""
    found = patient.findings(gpus=3, ranks=3)
    words = "a pod asks for 3 of nvidia.com/gpu, and no node offers that many"
    assert words in found["gpus-allocatable"].evidence


def test_unreachable_cluster_is_one_finding(patient: Patient) -> None:
    """A cluster that cannot be reached is one finding, and the other checks of the cluster find
    nothing.
    """
    plan = patient.plan()
    kubectl = f"{plan.kubectl} --server=https://127.0.0.1:9"
    assert findings_of(examine(replace(plan, kubectl=kubectl))) == ["api-server"]


def test_another_clusters_certificate_is_refused_and_said_so(patient: Patient) -> None:
    """An API server whose certificate is for another name is refused, and the finding says so."""
    plan = patient.plan()
    kubectl = f"{plan.kubectl} --tls-server-name=other.example"
    report = examine(replace(plan, kubectl=kubectl))
    assert findings_of(report) == ["api-server"]
    (finding,) = [result for result in report.results if result.id == "api-server"]
    assert "certificate is refused" in finding.evidence


# The scheduling gate keeps the pod from every node, so that no image is pulled.
BARE_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "bare", "namespace": "default"},
    "spec": {
        "schedulingGates": [{"name": "example.org/never"}],
        "containers": [{"name": "bare", "image": "example.org/none"}],
    },
}


def test_a_pod_without_any_label_keeps_no_other_from_being_seen(patient: Patient) -> None:
    """A pod without any label is seen as waiting, and hinders no other check."""
    patient.kubectl("apply", "-f", "-", text=BARE_POD)
    try:
        scheduled = "--for=jsonpath={.status.conditions[0].reason}=SchedulingGated"
        patient.kubectl("-n", "default", "wait", "pod/bare", scheduled, "--timeout=300s")
        found = patient.findings(namespace="default")
        assert list(found) == ["waiting-pods"]
        assert "pod bare has no node: " in found["waiting-pods"].evidence
    finally:
        patient.kubectl("-n", "default", "delete", "pod", "bare", "--now")


def of(patient: Patient) -> dict[str, str]:
    """Return the variables of the operator's scripts for this cluster."""
    return {"KUBECTL": " ".join(patient.cluster.kubectl), "NAMESPACE": "gpu-operator"}


def test_operator_that_fails_is_named_with_its_words_by_doctor_and_wait(patient: Patient) -> None:
    """If the GPU Operator fails, both the doctor and the script that waits for it repeat the
    operator's own words. An operator that has not set a state yet is named too.
    """
    patient.kubectl("apply", "-f", "-", text=definition(POLICIES, "ClusterPolicy"))
    established = ("--for=condition=Established", f"crd/{POLICIES}")
    patient.kubectl("wait", *established, "--timeout=300s")
    patient.kubectl("apply", "-f", "-", text=FAILED_POLICY)
    try:
        finding = patient.findings(gpus=1, ranks=1, operator=True)["cluster-policy"]
        said = "ready: failed to retrieve GPU node OS info"
        assert finding.evidence == f"ClusterPolicy is {said}"
        wanted = {"WAIT_FOR": "gpus", "GPUS": "0", "TIMEOUT_SECONDS": "0"}
        done = run("gpu-operator-await.sh", "create", **of(patient), **wanted)
        assert done.returncode == 1, done.stderr
        assert f"operator {said}, 0 of 0 GPUs offered" in done.stdout
        # An operator that has failed at its first attempt has never set a state.
        conditions = {"conditions": FAILED_POLICY["status"]["conditions"]}
        patient.kubectl("apply", "-f", "-", text={**FAILED_POLICY, "status": conditions})
        finding = patient.findings(gpus=1, ranks=1, operator=True)["cluster-policy"]
        assert finding.evidence == f"ClusterPolicy is {said.removeprefix('ready')}"
        patient.kubectl("apply", "-f", "-", text={**FAILED_POLICY, "status": {}})
        finding = patient.findings(gpus=1, ranks=1, operator=True)["cluster-policy"]
        assert finding.evidence == "ClusterPolicy is without a state"
    finally:
        patient.kubectl("delete", *established[1:])


def test_cleanup_of_the_operator_takes_its_labels_from_a_real_node(patient: Patient) -> None:
    """The cleanup at `destroy` removes the operator's labels and annotations from a node, and no
    others.
    """
    labels = ("nvidia.com/gpu.count=3", "nvidia.com/mig.config=all-disabled", "example.org/own=1")
    patient.kubectl("label", "node", patient.node, *labels)
    patient.kubectl("annotate", "node", patient.node, "nvidia.com/gpu-driver-upgrade-enabled=true")
    crds = " ".join(chart_definitions("v26.3.3"))
    done = run("gpu-operator-cleanup.sh", "delete", CRDS=crds, **of(patient))
    assert done.returncode == 0, done.stdout + done.stderr
    node = json.loads(patient.kubectl("get", "node", patient.node, "-o", "json"))["metadata"]
    keys = [*node["labels"], *node["annotations"]]
    assert [key for key in keys if key.startswith("nvidia.com/")] == []
    assert node["labels"]["example.org/own"] == "1"
