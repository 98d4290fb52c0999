"""The scripts of the GPU Operator and of the trust store, run for real; kubectl is a stub."""

import subprocess
from pathlib import Path

import pytest

from tests.unit.run_script import run

# Answers from files; `state` and `gpus` give one line per call and stay at their last one.
KUBECTL = """#!/bin/sh
folder=$(dirname "$0")
next() {{ head -n 1 "$folder/$1"; [ "$(wc -l <"$folder/$1")" -le 1 ] || sed -i 1d "$folder/$1"; }}
echo "$*" >>"$folder/calls"
case "$*" in
  *clusterpolicies.nvidia.com*go-template*) next state ;;
  *allocatable*) next gpus ;;
  *"get pods"*) cat "$folder/pods" ;;
  *"get nodes -o go-template"*labels*) cat "$folder/labels" ;;
  *"get nodes -o go-template"*annotations*) cat "$folder/annotations" ;;
  *"get secrets"*) next records ;;
  *"get crd"*) cat "$folder/crds" ;;
  *"get namespace"*) cat "$folder/note" ;;
  *readyz*) exit "$(cat "$folder/ready")" ;;
esac
"""
FILES = ("state", "gpus", "pods", "labels", "annotations", "calls", "crds", "note", "records")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.replace("{{", "{").replace("}}", "}"))
    kubectl.chmod(0o755)
    for name in FILES:
        (tmp_path / name).write_text("")
    (tmp_path / "ready").write_text("0")
    return tmp_path


def wait(cluster: Path, timeout_seconds: int, **more: str) -> subprocess.CompletedProcess[str]:
    return run(
        "gpu-operator-await.sh",
        "create",
        KUBECTL=str(cluster / "kubectl"),
        NAMESPACE="gpu-operator",
        GPUS="3",
        TIMEOUT_SECONDS=str(timeout_seconds),
        **more,
    )


def test_wait_shows_what_is_missing_and_ends_when_the_gpus_are_offered(cluster: Path) -> None:
    (cluster / "state").write_text("notReady\nready\nready\n")
    (cluster / "gpus").write_text("\n0\n3\n")
    (cluster / "pods").write_text(
        "nvidia-driver-x|Pending|False|Init:CrashLoopBackOff \nvalidator|Succeeded|False|\n"
        "toolkit|Running|True|\n"
    )
    done = wait(cluster, 30)
    assert done.returncode == 0, done.stderr
    assert "0 of 3 GPUs offered; waits for: nvidia-driver-x (Init:CrashLoopBackOff)" in done.stdout
    assert "the node offers 3 GPUs" in done.stdout.splitlines()[-1]


def test_wait_fails_with_the_pods_reason(cluster: Path) -> None:
    (cluster / "state").write_text("notReady\n")
    (cluster / "gpus").write_text("0\n")
    (cluster / "pods").write_text("nvidia-operator-validator-q|Pending|False|PodInitializing \n")
    done = wait(cluster, 0)
    assert done.returncode == 1
    assert "waited 0 s (gpuOperatorTimeoutSeconds); operator notReady, 0 of 3" in done.stdout
    assert "nvidia-operator-validator-q (PodInitializing)" in done.stdout


def test_operator_that_fails_is_not_ready_whatever_its_state_of_before(cluster: Path) -> None:
    (cluster / "state").write_text("ready: failed to retrieve GPU node OS info\n")
    (cluster / "gpus").write_text("3\n")
    done = wait(cluster, 0)
    assert done.returncode == 1
    assert "operator ready: failed to retrieve GPU node OS info, 3 of 3 GPUs" in done.stdout


def test_watch_shows_the_pods_that_helm_waits_for_until_it_is_done(cluster: Path) -> None:
    (cluster / "records").write_text("\npending-install\npending-install\ndeployed\n")
    (cluster / "pods").write_text("gpu-operator-x|Pending|False|ContainerCreating \n")
    done = wait(cluster, 60, RELEASE="gpu-operator")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2 s: Helm is at work on gpu-operator; waits for: gpu-operator-x (ContainerCreating)"
    ]


def test_watch_of_an_install_that_helm_gives_up_says_why(cluster: Path) -> None:
    """The record of an attempt before is no news."""
    (cluster / "records").write_text("failed\npending-upgrade\nfailed\n")
    (cluster / "pods").write_text("gpu-operator-x|Pending|False|ImagePullBackOff \n")
    done = wait(cluster, 60, RELEASE="gpu-operator")
    assert done.returncode == 1
    reason = "Helm has given up; it waited for: gpu-operator-x (ImagePullBackOff)"
    assert f"the GPU Operator is not ready: {reason}" in done.stdout


def test_dry_wait_says_what_it_would_wait_for_and_asks_nobody(cluster: Path) -> None:
    variables = {"KUBECTL": str(cluster / "kubectl"), "NAMESPACE": "gpu-operator", "GPUS": "3"}
    done = run("gpu-operator-await.sh", "create", **variables, TIMEOUT_SECONDS="60", DRY_RUN="1")
    assert done.stdout == "would wait up to 60 s until the node offers 3 GPUs\n"
    assert (cluster / "calls").read_text() == ""


def cleanup(cluster: Path, action: str = "delete") -> subprocess.CompletedProcess[str]:
    kubectl = str(cluster / "kubectl")
    return run("gpu-operator-cleanup.sh", action, KUBECTL=kubectl, NAMESPACE="gpu-operator")


def test_cleanup_takes_nvidias_labels_and_crds_and_nobody_elses(cluster: Path) -> None:
    (cluster / "labels").write_text(
        "kubernetes.io/hostname\nnvidia.com/gpu.count\nnvidia.com/mig.config\nmine/nvidia.com\n"
        "feature.node.kubernetes.io/pci-10de.present\n"
    )
    (cluster / "annotations").write_text("nvidia.com/gpu-driver-upgrade-enabled\nflannel/x\n")
    (cluster / "crds").write_text(
        "clusterpolicies.nvidia.com\ncomputedomains.resource.nvidia.com\nwidgets.mynvidia.com\n"
        "nodefeatures.nfd.k8s-sigs.io\nnodefeaturerules.nfd.k8s-sigs.io\n"
    )
    (cluster / "note").write_text("noted nodefeatures.nfd.k8s-sigs.io ")
    done = cleanup(cluster)
    assert done.returncode == 0, done.stderr
    calls = (cluster / "calls").read_text().splitlines()
    assert "label nodes --all --dry-run=none nvidia.com/gpu.count- nvidia.com/mig.config-" in calls
    assert "annotate nodes --all --dry-run=none nvidia.com/gpu-driver-upgrade-enabled-" in calls
    (delete,) = [call for call in calls if call.startswith("delete crd ")]
    assert [word for word in delete.split() if "." in word] == [
        "clusterpolicies.nvidia.com",
        "computedomains.resource.nvidia.com",
        "nodefeaturerules.nfd.k8s-sigs.io",
    ]


def test_cleanup_takes_what_the_charts_own_discovery_wrote(cluster: Path) -> None:
    (cluster / "labels").write_text("feature.node.kubernetes.io/pci-10de.present\nfeature.mine/x\n")
    (cluster / "annotations").write_text("nfd.node.kubernetes.io/feature-labels\n")
    (cluster / "note").write_text("noted ")  # no CRD of a discovery was there before
    done = cleanup(cluster)
    assert done.returncode == 0, done.stderr
    calls = (cluster / "calls").read_text()
    assert (
        "label nodes --all --dry-run=none feature.node.kubernetes.io/pci-10de.present-\n" in calls
    )
    assert "annotate nodes --all --dry-run=none nfd.node.kubernetes.io/feature-labels-\n" in calls


def test_cleanup_without_a_note_leaves_what_may_be_somebody_elses(cluster: Path) -> None:
    (cluster / "crds").write_text("clusterpolicies.nvidia.com\nnodefeatures.nfd.k8s-sigs.io\n")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    (delete,) = [call for call in calls if call.startswith("delete crd ")]
    assert [word for word in delete.split() if "." in word] == ["clusterpolicies.nvidia.com"]


def test_note_of_the_crds_before_is_made_once(cluster: Path) -> None:
    (cluster / "crds").write_text("nodefeatures.nfd.k8s-sigs.io\nothers.example.org\n")
    assert cleanup(cluster, "create").returncode == 0
    note = "disttrain.dev/crds-before=nodefeatures.nfd.k8s-sigs.io"
    assert [call.split() for call in (cluster / "calls").read_text().splitlines()][-1] == [
        *("annotate", "namespace", "gpu-operator", "--dry-run=none", note),
    ]
    (cluster / "kubectl").write_text("#!/bin/sh\ncase $2 in crd) exit 1 ;; esac\n" + KUBECTL[10:])
    (cluster / "calls").write_text("")
    assert cleanup(cluster, "create").returncode == 1
    assert "annotate" not in (cluster / "calls").read_text()
    (cluster / "note").write_text("noted ")
    (cluster / "calls").write_text("")
    assert cleanup(cluster, "create").returncode == 0
    assert "annotate" not in (cluster / "calls").read_text()


def test_cleanup_of_a_cluster_that_is_gone_is_done(cluster: Path) -> None:
    (cluster / "ready").write_text("1")
    done = cleanup(cluster)
    assert done.returncode == 0
    assert "does not answer" in done.stdout


STORES = {
    "debian": ("usr/local/share/ca-certificates", "update-ca-certificates"),
    "rhel": ("etc/pki/ca-trust/source/anchors", "update-ca-trust"),
    "suse": ("etc/pki/trust/anchors", "update-ca-certificates"),
}
BUNDLE = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"


@pytest.mark.parametrize("family", STORES)
def test_authorities_are_added_once_and_taken_out_again(family: str, tmp_path: Path) -> None:
    folder, update = STORES[family]
    store, tools = tmp_path / "root" / folder, tmp_path / "bin"
    store.mkdir(parents=True)
    tools.mkdir()
    tool = tools / update
    tool.write_text(f"#!/bin/sh\necho x >>{tmp_path}/updates\n")
    tool.chmod(0o755)

    def act(action: str) -> int:
        variables = {"CA_BUNDLE": BUNDLE, "STORE_ROOT": str(tmp_path / "root"), "BIN": str(tools)}
        done = run("ca-bundle.sh", action, **variables)
        assert done.returncode == 0, done.stderr
        return len((tmp_path / "updates").read_text().splitlines())

    assert act("create") == 1
    assert (store / "disttrain.crt").read_text() == BUNDLE + "\n"
    assert act("create") == 1
    assert act("delete") == 2
    assert list(store.iterdir()) == []
    assert act("delete") == 2
