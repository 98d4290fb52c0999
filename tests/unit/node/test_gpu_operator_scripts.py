"""The scripts for the GPU Operator, run for real with a stand-in for kubectl."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from infra.platform.gpu_operator_definitions import chart_definitions
from tests.unit.run_script import run

# A stand-in that answers from files. `state`, `gpus`, `names`, `records` and `ready` give one line
# per call and stay at their last one. The first call with the words of the file `refused` fails.
KUBECTL = """#!/bin/sh
folder=$(dirname "$0")
next() {{ head -n 1 "$folder/$1"; [ "$(wc -l <"$folder/$1")" -le 1 ] || sed -i 1d "$folder/$1"; }}
echo "$*" >>"$folder/calls"
refused=$(cat "$folder/refused" 2>/dev/null || echo no such words)
case "$*" in *"$refused"*)
  rm "$folder/refused"
  echo "The connection to the server was refused" >&2
  exit 1
  ;;
esac
case "$*" in
  *clusterpolicies.nvidia.com*go-template*) next state ;;
  *"get clusterpolicies.nvidia.com -o jsonpath"*) cat "$folder/installed" ;;
  *allocatable*) next gpus ;;
  *"get pods -o name"*) names=$(next names); [ "$names" != away ] || exit 1; echo "$names" ;;
  *"get pods"*) cat "$folder/pods" ;;
  *"get nodes -l"*"-o name") cat "$folder/present" ;;
  *"get nodes -l"*) cat "$folder/mig" ;;
  "label node "* | "patch node "*) cp "$folder/mig-then" "$folder/mig" ;;
  *"get nodes -o go-template"*labels*) cat "$folder/labels" ;;
  *"get nodes -o go-template"*annotations*) cat "$folder/annotations" ;;
  *"get nodefeatures"*) cat "$folder/features" ;;
  *"get secrets"*) next records ;;
  *"get crd clusterpolicies.nvidia.com"*) cat "$folder/policies" ;;
  *"get crd"*) cat "$folder/crds" ;;
  *"get clusterroles"*) cat "$folder/roles" ;;
  *"get namespace"*labels*) cat "$folder/namespace" ;;
  *"get namespace"*keys-before*) cat "$folder/keys" ;;
  *"get namespace"*) cat "$folder/note" ;;
  *readyz*) exit "$(next ready)" ;;
esac
"""
FILES = ("state", "gpus", "pods", "labels", "annotations", "calls", "crds", "note", "records")
FILES += ("present", "names", "namespace", "policies", "mig", "mig-then", "roles", "keys")
FILES += ("features", "installed")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return a folder with stand-ins for kubectl and sleep, and with the files from which kubectl
    answers.
    """
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.replace("{{", "{").replace("}}", "}"))
    kubectl.chmod(0o755)
    for name in FILES:
        (tmp_path / name).write_text("")
    (tmp_path / "ready").write_text("0\n")
    sleep = tmp_path / "sleep"  # the scripts ask again every 2 s
    sleep.write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
    sleep.chmod(0o755)
    return tmp_path


def wait(cluster: Path, timeout_seconds: int, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script that waits for the operator, for 3 GPUs unless `more` says otherwise."""
    return run(
        "gpu-operator-await.sh",
        "create",
        BIN=str(cluster),
        KUBECTL=str(cluster / "kubectl"),
        NAMESPACE="gpu-operator",
        **{"WAIT_FOR": "gpus", "GPUS": "3", **more},
        TIMEOUT_SECONDS=str(timeout_seconds),
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
    assert "3 GPUs are offered" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(("nodes", "offered"), [("3", 3), ("1 2", 3), ("8 8", 16), ("", 0)])
def test_gpus_of_all_nodes_are_counted(cluster: Path, nodes: str, offered: int) -> None:
    """The wait counts the GPUs of all nodes together, as the doctor does."""
    (cluster / "state").write_text("ready\n")
    lines = "".join(f"{count}\n" for count in nodes.split())
    (cluster / "all").write_text(f"{lines}\n")  # a node without GPUs has an empty line
    kubectl = cluster / "kubectl"
    kubectl.write_text(kubectl.read_text().replace("next gpus", 'cat "$folder/all"'))
    done = wait(cluster, 0, GPUS="99")
    assert f"operator ready, {offered} of 99 GPUs offered" in done.stdout


def test_ready_of_before_a_change_is_not_taken(cluster: Path) -> None:
    """After a change of the operator's Helm release, the wait ends only when the operator has been
    ready for a while. It says `ready` for some seconds before it sees the change, and `up` would go
    on with GPUs that are not shared yet.
    """
    (cluster / "state").write_text("ready\nready\nnotReady\nready\n")
    (cluster / "gpus").write_text("2\n2\n2\n4\n")
    done = wait(cluster, 60, GPUS="2", RELEASE_REVISION="2")
    assert done.returncode == 0, done.stderr
    assert "waits for: the operator, which may not have seen the change" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("4 GPUs are offered")
    (cluster / "state").write_text("ready\n")
    assert len(wait(cluster, 60, GPUS="2", RELEASE_REVISION="1").stdout.splitlines()) == 1


def test_cluster_without_an_nvidia_device_is_named(cluster: Path) -> None:
    """If no node has an NVIDIA GPU, the wait says so. The operator is ready then, as it has nothing
    to do, and the wait would only say "waits for: nothing".
    """
    (cluster / "state").write_text("ready\n")
    (cluster / "gpus").write_text("0\n")
    assert "the node feature discovery has found none" in wait(cluster, 0).stdout
    (cluster / "present").write_text("node/gpu01\n")
    assert "waits for: nothing" in wait(cluster, 0).stdout


def test_wait_for_gpus_heeds_no_release_of_the_environment(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable RELEASE in the shell of `pulumi up`, common in CI, does not change what the wait
    waits for. Otherwise it would end with success although no GPU is offered.
    """
    monkeypatch.setenv("RELEASE", "1.2")
    (cluster / "state").write_text("notReady\n")
    done = wait(cluster, 0)
    assert done.returncode == 1
    assert "waited 0 s (gpuOperatorTimeoutSeconds); operator notReady" in done.stdout


def test_wait_for_something_unknown_is_refused(cluster: Path) -> None:
    done = wait(cluster, 0, WAIT_FOR="pods")
    assert done.returncode == 2
    assert "WAIT_FOR: 'pods' cannot be used: set release or gpus" in done.stderr


def test_wait_fails_with_the_pods_reason(cluster: Path) -> None:
    (cluster / "state").write_text("notReady\n")
    (cluster / "gpus").write_text("0\n")
    (cluster / "pods").write_text("nvidia-operator-validator-q|Pending|False|PodInitializing \n")
    done = wait(cluster, 0)
    assert done.returncode == 1
    assert "waited 0 s (gpuOperatorTimeoutSeconds); operator notReady, 0 of 3" in done.stdout
    assert "nvidia-operator-validator-q (PodInitializing)" in done.stdout


def test_operator_that_fails_is_not_ready_whatever_its_state_of_before(cluster: Path) -> None:
    """An operator that reports a failure is not ready, although its state is still `ready` from
    before.
    """
    (cluster / "state").write_text("ready: failed to retrieve GPU node OS info\n")
    (cluster / "gpus").write_text("3\n")
    done = wait(cluster, 0)
    assert done.returncode == 1
    assert "operator ready: failed to retrieve GPU node OS info, 3 of 3 GPUs" in done.stdout


def test_watch_shows_the_pods_that_helm_waits_for_until_it_is_done(cluster: Path) -> None:
    (cluster / "records").write_text("\npending-install\npending-install\ndeployed\n")
    (cluster / "pods").write_text("gpu-operator-x|Pending|False|ContainerCreating \n")
    done = wait(cluster, 60, WAIT_FOR="release", RELEASE="gpu-operator")
    assert done.returncode == 0, done.stderr
    lines = {re.sub(r"^\d+ s: ", "", line) for line in done.stdout.splitlines()}
    assert lines == {
        "Helm is at work on gpu-operator; waits for: gpu-operator-x (ContainerCreating)"
    }


def test_watch_of_an_install_that_helm_gives_up_says_why(cluster: Path) -> None:
    """If Helm gives up installing the operator, the watch fails and names the pods for which Helm
    waited. The failure of an earlier attempt does not end it.
    """
    (cluster / "records").write_text("failed\npending-upgrade\nfailed\n")
    (cluster / "pods").write_text("gpu-operator-x|Pending|False|ImagePullBackOff \n")
    done = wait(cluster, 60, WAIT_FOR="release", RELEASE="gpu-operator")
    assert done.returncode == 1
    reason = "Helm has given up; it waited for: gpu-operator-x (ImagePullBackOff)"
    assert f"the GPU Operator is not ready: {reason}" in done.stdout


def test_dry_wait_says_what_it_would_wait_for_and_asks_nobody(cluster: Path) -> None:
    done = wait(cluster, 60, DRY_RUN="1")
    assert done.stdout == "would wait up to 60 s until 3 GPUs are offered\n"
    done = wait(cluster, 60, DRY_RUN="1", WAIT_FOR="release", RELEASE="gpu-operator")
    assert done.stdout == "would show what Helm waits for\n"
    assert (cluster / "calls").read_text() == ""


def with_mig(cluster: Path, before: str, then: str = "") -> None:
    """Prepare nodes with their label for MIG, its state, and the value that this program gave the
    label, separated by `|`. `then` is the same after the first change of a node, as the MIG manager
    would leave it.
    """
    (cluster / "mig").write_text(before)
    (cluster / "mig-then").write_text(then or before)
    (cluster / "state").write_text("ready\n")
    (cluster / "gpus").write_text("3\n")


CHANGES = ("label node ", "annotate node ", "patch node ")


def changes_of_nodes(cluster: Path) -> list[str]:
    """Return the calls of kubectl that have changed nodes."""
    calls = (cluster / "calls").read_text().splitlines()
    return [call for call in calls if call.startswith(CHANGES)]


PROFILE = "all-1g.10gb"
DIVIDED = {
    "labels": {"nvidia.com/mig.config": PROFILE, "nvidia.com/mig.config.state": None},
    "annotations": {"disttrain.dev/mig-config": PROFILE},
}


@pytest.mark.parametrize(
    "before",
    [
        "a|||",
        "a|all-disabled|success|",
        "a|all-disabled|success|all-1g.20gb",
        "a|all-x|success|all-x",
    ],
    ids=["new", "whole", "by hand", "another profile"],
)
def test_gpus_are_divided_by_a_label(cluster: Path, before: str) -> None:
    """The GPUs of a node are divided by one change, which sets the node's label for MIG and notes
    that this program has set it. That holds for a new node, for one whose GPUs are whole, and for
    one to which this program gave another profile.
    """
    with_mig(cluster, before, f"a|{PROFILE}|success|{PROFILE}")
    done = wait(cluster, 30, MIG_CONFIG=PROFILE)
    assert done.returncode == 0, done.stdout + done.stderr
    (change,) = changes_of_nodes(cluster)
    begin, _, patch = change.partition("--patch=")
    assert begin == "patch node a --type=merge "
    assert json.loads(patch) == {"metadata": DIVIDED}
    assert "waits for: node a (MIG: not begun)" in done.stdout


def test_divided_gpus_are_left_as_they_are(cluster: Path) -> None:
    """A node whose GPUs are divided as the settings say is not changed."""
    with_mig(cluster, f"a|{PROFILE}|success|{PROFILE}\nb|{PROFILE}|success|\n")
    assert wait(cluster, 0, MIG_CONFIG=PROFILE).returncode == 0
    assert changes_of_nodes(cluster) == []


def test_gpus_that_cannot_be_divided_end_the_wait(cluster: Path) -> None:
    with_mig(cluster, f"a|{PROFILE}|failed|{PROFILE}")
    done = wait(cluster, 30, MIG_CONFIG=PROFILE)
    assert done.returncode == 1
    assert "node a could not be divided" in done.stdout
    assert "kubectl -n gpu-operator logs ds/nvidia-mig-manager says why" in done.stdout


def test_missing_node_for_mig_is_waited_for(cluster: Path) -> None:
    with_mig(cluster, "")
    done = wait(cluster, 0, MIG_CONFIG=PROFILE)
    assert done.returncode == 1
    assert "waits for: a node whose GPUs can be divided" in done.stdout


def test_mig_of_somebody_else_is_refused(cluster: Path) -> None:
    """A node that somebody else has divided in another way is refused with the way out, and stays
    as it is.
    """
    with_mig(cluster, "a|all-balanced|success|")
    done = wait(cluster, 30, MIG_CONFIG=PROFILE)
    assert done.returncode == 1
    assert "migProfile: node a has the label nvidia.com/mig.config=all-balanced" in done.stdout
    assert "Set migProfile to balanced, or remove the label" in done.stdout
    assert changes_of_nodes(cluster) == []


def test_removed_profile_makes_our_gpus_whole(cluster: Path) -> None:
    """Without the setting, the GPUs of a node that this program has divided are whole again. Nodes
    that others have divided stay as they are.
    """
    theirs = "b|all-balanced|success|\n"
    before = f"a|{PROFILE}|success|{PROFILE}\n{theirs}"
    with_mig(cluster, before, f"a|all-disabled|success|{PROFILE}\n{theirs}")
    assert wait(cluster, 30).returncode == 0
    assert changes_of_nodes(cluster) == [
        "label node a --overwrite nvidia.com/mig.config=all-disabled nvidia.com/mig.config.state-",
        "annotate node a disttrain.dev/mig-config-",
    ]


@pytest.mark.parametrize(
    ("profile", "refused"), [(PROFILE, "patch node"), ("", "annotate node"), ("", "label node")]
)
def test_refused_change_of_a_node_is_tried_again(cluster: Path, profile: str, refused: str) -> None:
    """A change of a node that the API server refuses is made again. The operator's toolkit restarts
    k3s at this time, so `pulumi up` would often fail here.
    """
    other = PROFILE if profile == "" else "all-disabled"
    wanted = profile or "all-disabled"
    with_mig(cluster, f"a|{other}|success|{PROFILE}", f"a|{wanted}|success|{PROFILE}")
    (cluster / "refused").write_text(refused)
    done = wait(cluster, 30, MIG_CONFIG=profile)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a change of node a (The connection to the server was refused)" in done.stdout
    changes = [call for call in changes_of_nodes(cluster) if call.startswith(refused)]
    assert len(changes) == 2
    assert changes[0] == changes[1]


def test_label_that_somebody_changed_since_stays(cluster: Path) -> None:
    """If somebody has changed the label for MIG since this program set it, the label stays and only
    this program's note is removed.
    """
    with_mig(cluster, f"a|all-balanced|success|{PROFILE}\n")
    assert wait(cluster, 30).returncode == 0
    assert changes_of_nodes(cluster) == ["annotate node a disttrain.dev/mig-config-"]


def test_cleanup_takes_our_note_of_mig(cluster: Path) -> None:
    """The clean-up also removes this program's note about MIG from the nodes."""
    (cluster / "labels").write_text("nvidia.com/mig.config\n")
    (cluster / "annotations").write_text("disttrain.dev/mig-config\ndisttrain.dev/other\n")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    assert "label nodes --all --dry-run=none nvidia.com/mig.config-" in calls
    assert "annotate nodes --all --dry-run=none disttrain.dev/mig-config-" in calls


def cleanup(
    cluster: Path, action: str = "delete", chart: str = "v26.7.0"
) -> subprocess.CompletedProcess[str]:
    """Run the script that removes what the operator of this chart version leaves behind."""
    variables = {"BIN": str(cluster), "KUBECTL": str(cluster / "kubectl")}
    variables["CRDS"] = " ".join(chart_definitions(chart))
    return run("gpu-operator-cleanup.sh", action, NAMESPACE="gpu-operator", **variables)


def test_cleanup_takes_nvidias_labels_and_crds_and_nobody_elses(cluster: Path) -> None:
    """The clean-up removes labels, annotations and CRDs of the operator. It leaves those of others,
    and the CRDs that were noted as there before the operator.
    """
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


def test_cleanup_leaves_labels_of_an_administrator(cluster: Path) -> None:
    """Labels and annotations of NVIDIA's names that nodes had before the operator are noted, and
    the clean-up leaves them. With `nvidia.com/gpu.deploy.operands=false`, for example, whoever runs
    the cluster keeps operators away from a node.
    """
    theirs = "nvidia.com/gpu.deploy.operands\n"
    (cluster / "labels").write_text(f"kubernetes.io/hostname\n{theirs}")
    (cluster / "annotations").write_text("nvidia.com/theirs\n")
    assert cleanup(cluster, "create").returncode == 0
    noted = (cluster / "calls").read_text().splitlines()[-1].partition("node-keys-before=")[2]
    assert noted.split() == ["nvidia.com/gpu.deploy.operands", "nvidia.com/theirs"]
    (cluster / "note").write_text("noted ")
    (cluster / "keys").write_text(f"noted {noted}")
    (cluster / "labels").write_text(f"nvidia.com/gpu.count\n{theirs}")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    assert "label nodes --all --dry-run=none nvidia.com/gpu.count-" in calls
    assert not [call for call in calls if call.startswith("annotate nodes")]


def test_cleanup_leaves_other_operators_of_nvidia(cluster: Path) -> None:
    """The clean-up leaves the CRDs of NVIDIA's other operators, such as the NIM Operator, although
    they have NVIDIA's API groups and came after the note. With a CRD all its objects would be
    deleted.
    """
    others = (
        "nimservices.apps.nvidia.com\nnicclusterpolicies.mellanox.com\n"
        "nicdevices.configuration.net.nvidia.com\ncomputedomains.resource.nvidia.com\n"
    )
    (cluster / "crds").write_text(f"clusterpolicies.nvidia.com\n{others}")
    (cluster / "note").write_text("noted ")
    assert cleanup(cluster, chart="v26.3.3").returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    (delete,) = [call for call in calls if call.startswith("delete crd ")]
    assert [word for word in delete.split() if "." in word] == ["clusterpolicies.nvidia.com"]


def test_cleanup_takes_what_the_charts_own_discovery_wrote(cluster: Path) -> None:
    """If no node feature discovery was there before the operator, the clean-up also removes the
    labels and annotations of the discovery that the chart brought.
    """
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


def test_cleanup_leaves_a_later_discovery(cluster: Path) -> None:
    """If another node feature discovery has come since, such as that of NVIDIA's Network Operator,
    the clean-up leaves the definitions and the labels that both have written. Without them the
    drivers of that operator would go from the nodes, and with them the network of all runs.
    """
    (cluster / "note").write_text("noted ")
    (cluster / "crds").write_text("clusterpolicies.nvidia.com\nnodefeatures.nfd.k8s-sigs.io\n")
    (cluster / "labels").write_text("nvidia.com/gpu.count\nfeature.node.kubernetes.io/pci-15b3\n")
    for places in ("gpu-operator\nnetwork-operator\n", "gpu-operator\n"):
        is_alone = "network" not in places
        (cluster / "features").write_text(places)
        (cluster / "calls").write_text("")
        done = cleanup(cluster)
        assert done.returncode == 0, done.stderr
        assert ("another one is in namespace network-operator" in done.stdout) != is_alone
        calls = (cluster / "calls").read_text()
        assert "delete crd clusterpolicies.nvidia.com" in calls
        assert "nvidia.com/gpu.count-" in calls
        assert ("pci-15b3-" in calls) == is_alone
        assert ("nodefeatures.nfd.k8s-sigs.io --ignore" in calls) == is_alone


def test_cleanup_without_a_note_leaves_what_may_be_somebody_elses(cluster: Path) -> None:
    """Without a note of what was there before, the clean-up leaves the CRDs of the node feature
    discovery, which may be somebody else's.
    """
    (cluster / "crds").write_text("clusterpolicies.nvidia.com\nnodefeatures.nfd.k8s-sigs.io\n")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    (delete,) = [call for call in calls if call.startswith("delete crd ")]
    assert [word for word in delete.split() if "." in word] == ["clusterpolicies.nvidia.com"]


def test_cleanup_without_a_note_names_what_stays(cluster: Path) -> None:
    """After somebody has deleted the namespace, nobody knows who needs the discovery's definitions.
    The clean-up leaves them, and says how to remove them.
    """
    names = ["nodefeatures.nfd.k8s-sigs.io", "nodefeaturerules.nfd.k8s-sigs.io"]
    (cluster / "crds").write_text("\n".join(names))
    assert f"kubectl delete crd {' '.join(names)}\n" in cleanup(cluster).stdout
    (cluster / "note").write_text("noted ")
    assert "kubectl delete" not in cleanup(cluster).stdout


def test_cleanup_removes_roles_of_a_forgotten_release(cluster: Path) -> None:
    """After somebody has deleted the namespace, Helm knows nothing of the release and removes none
    of its roles.
    """
    (cluster / "roles").write_text("ClusterRole/gpu-operator ClusterRoleBinding/gpu-operator ")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    (asked,) = [call for call in calls if "get clusterroles" in call]
    assert 'meta.helm.sh/release-namespace")) "gpu-operator"' in asked
    (delete,) = [call for call in calls if call.startswith("delete ")]
    assert "ClusterRole/gpu-operator ClusterRoleBinding/gpu-operator" in delete


def test_cleanup_leaves_an_operator_of_somebody_else(cluster: Path) -> None:
    """Somebody has deleted the namespace and installed an operator of their own in a new one."""
    (cluster / "namespace").write_text("kubernetes.io/metadata.name there")
    (cluster / "crds").write_text("clusterpolicies.nvidia.com\n")
    (cluster / "labels").write_text("nvidia.com/gpu.count\n")
    done = cleanup(cluster)
    assert done.returncode == 0
    assert "is not this stack's any more" in done.stdout
    calls = (cluster / "calls").read_text()
    assert "delete" not in calls
    assert "label nodes" not in calls
    (cluster / "namespace").write_text("disttrain.dev/owner kubernetes.io/metadata.name there")
    assert cleanup(cluster).returncode == 0
    assert "delete crd clusterpolicies.nvidia.com" in (cluster / "calls").read_text()


def test_cleanup_ends_where_the_owner_is_not_known(cluster: Path) -> None:
    """If the namespace cannot be read, the clean-up deletes nothing and fails. The operator could
    be somebody else's by now.
    """
    (cluster / "refused").write_text("get namespace gpu-operator --ignore-not-found")
    (cluster / "crds").write_text("clusterpolicies.nvidia.com\n")
    (cluster / "namespace").write_text("kubernetes.io/metadata.name there")
    done = cleanup(cluster)
    assert done.returncode == 1
    assert "was refused" in done.stderr
    assert "delete" not in (cluster / "calls").read_text()


@pytest.mark.parametrize(("there", "says"), [("", True), ("namespace/gpu-operator\n", False)])
def test_deleted_namespace_is_named_before_the_release_goes(
    cluster: Path, there: str, says: bool
) -> None:
    """Helm fails at a release whose namespace is gone, and names no way out. So the command that is
    deleted before the release says what to do.
    """
    (cluster / "note").write_text(there)
    given = {"BIN": str(cluster), "KUBECTL": str(cluster / "kubectl"), "WAIT_FOR": "gpus"}
    given |= {"NAMESPACE": "gpu-operator", "GPUS": "1", "TIMEOUT_SECONDS": "1"}
    done = run("gpu-operator-await.sh", "delete", **given)
    assert done.returncode == 0
    assert ("Run `pulumi refresh`" in done.stdout) == says


def test_note_of_the_crds_before_is_made_once(cluster: Path) -> None:
    """The CRDs that are there before the operator are noted once. If they cannot be read, nothing
    is noted, and a note that exists stays as it is.
    """
    (cluster / "crds").write_text("nodefeatures.nfd.k8s-sigs.io\nothers.example.org\n")
    assert cleanup(cluster, "create").returncode == 0
    note = "disttrain.dev/crds-before=nodefeatures.nfd.k8s-sigs.io"
    assert [call.split() for call in (cluster / "calls").read_text().splitlines()][-1] == [
        *("annotate", "namespace", "gpu-operator", "--dry-run=none", note),
        "disttrain.dev/node-keys-before=",
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
    (cluster / "ready").write_text("1\n")
    done = cleanup(cluster)
    assert done.returncode == 0
    assert "does not answer" in done.stdout


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_unread_nodes_are_not_clean(cluster: Path, kind: str) -> None:
    """The clean-up fails if the nodes' labels or annotations cannot be read. Otherwise it would
    succeed and leave them behind.
    """
    (cluster / kind).write_text("nvidia.com/gpu.count\n")
    template = "{{range .items}}{{range $k, $v := .metadata."
    (cluster / "refused").write_text(f"get nodes -o go-template={template}{kind}")
    done = cleanup(cluster)
    assert done.returncode == 1
    assert "was refused" in done.stderr
    assert cleanup(cluster).stdout == f"1 {kind} removed from the nodes\n"


def test_cleanup_waits_for_pods_that_would_label_the_nodes_again(cluster: Path) -> None:
    """The clean-up removes labels only when the operator's pods are gone, as these would set the
    labels again.
    """
    (cluster / "names").write_text("pod/gfd-x\npod/gfd-x\n\n")
    (cluster / "labels").write_text("nvidia.com/gpu.count\n")
    assert cleanup(cluster).returncode == 0
    calls = (cluster / "calls").read_text().splitlines()
    asked = [i for i, call in enumerate(calls) if "get pods -o name" in call]
    labelled = next(i for i, call in enumerate(calls) if call.startswith("label nodes"))
    assert len(asked) == 3
    assert max(asked) < labelled


@pytest.mark.parametrize("when", ["before the clean-up", "during it"])
def test_cleanup_waits_for_a_k3s_that_restarts(cluster: Path, when: str) -> None:
    """The clean-up waits for a k3s that restarts before it or during it. The operator's toolkit
    ends containerd when it ends itself, and with it k3s, which systemd then starts again.
    """
    if when == "during it":
        (cluster / "names").write_text("pod/toolkit-x\naway\naway\npod/toolkit-x\n\n")
    else:
        (cluster / "ready").write_text("1\n1\n0\n")
    (cluster / "labels").write_text("nvidia.com/gpu.count\n")
    done = cleanup(cluster)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 labels removed from the nodes\n"
    assert (cluster / "names").read_text() == ("\n" if when == "during it" else "")


OWNER = "11111111-2222-3333-4444-555555555555"


def guard(cluster: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script that checks whether the operator may be installed or changed."""
    variables = {"NAMESPACE": "gpu-operator", "RELEASE": "gpu-operator", "OWNER": OWNER, **more}
    return run("gpu-operator-guard.sh", "create", KUBECTL=str(cluster / "kubectl"), **variables)


def test_operator_may_be_installed_where_none_is_or_our_own(cluster: Path) -> None:
    """The operator may be installed in a cluster that has none, or only the one of this stack."""
    assert guard(cluster).returncode == 0
    (cluster / "namespace").write_text(
        f"disttrain.dev/owner={OWNER}\ndisttrain.dev/stack=dev\nthere\n"
    )
    (cluster / "records").write_text("gpu-operator/gpu-operator\n")
    (cluster / "policies").write_text("a CRD\n")
    assert guard(cluster).returncode == 0


OTHERS = {
    "a namespace": (
        {"namespace": "kubernetes.io/metadata.name=gpu-operator\nthere\n"},
        "the namespace gpu-operator exists, and no stack has made it "
        "(Helm releases named gpu-operator: none)",
    ),
    "a namespace with a release": (
        {"namespace": "there\n", "records": "gpu-operator/gpu-operator\n"},
        "(Helm releases named gpu-operator: gpu-operator/gpu-operator)",
    ),
    "another stack": (
        {"namespace": "disttrain.dev/owner=0\ndisttrain.dev/stack=prod\nthere\n"},
        "the namespace gpu-operator belongs to the stack prod, whose state is another one",
    ),
    "a release elsewhere": (
        {"records": "nvidia/gpu-operator\n"},
        "the name of its Helm release is taken: nvidia/gpu-operator",
    ),
    "a policy elsewhere": (
        {"policies": "a CRD\n", "state": "cluster-policy of release nvidia/gpus\n"},
        "another one is in the cluster: ClusterPolicy cluster-policy of release nvidia/gpus",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_operator_of_somebody_else_is_refused_with_the_way_out(cluster: Path, other: str) -> None:
    """A GPU Operator or a namespace that this stack has not made is refused with the way out, and
    nothing is changed. Otherwise `up` would take it over, and `pulumi destroy` would delete the
    cluster's own GPU Operator.
    """
    files, words = OTHERS[other]
    for name, content in files.items():
        (cluster / name).write_text(content)
    done = guard(cluster)
    assert done.returncode == 1
    assert words in done.stdout
    assert "pulumi config set gpuOperator false" in done.stdout
    assert ("pulumi config set platform prod" in done.stdout) == (other == "another stack")
    calls = (cluster / "calls").read_text().split("--request-timeout=30s ")[1:]
    assert calls
    assert all(call.startswith("get ") for call in calls), "it only looks"


OF_CHART = "v26.3.3"


def with_trainings(cluster: Path, pods: str = "disttrain/train-0 8\ndisttrain/on-cpu \n") -> None:
    """Make the operator that of this stack, with a driver, and let these pods train."""
    (cluster / "namespace").write_text(f"disttrain.dev/owner={OWNER}\nthere\n")
    (cluster / "policies").write_text("a CRD\n")
    (cluster / "installed").write_text(f"gpu-operator-{OF_CHART} 580.95.05\n")
    (cluster / "pods").write_text(pods)


@pytest.mark.parametrize(
    ("wanted", "back"),
    [
        ({"DRIVER_CHART": "v26.7.0"}, f"pulumi config set gpuOperatorVersion {OF_CHART}"),
        (
            {"DRIVER_CHART": OF_CHART, "DRIVER_VERSION": "580.105.08"},
            "pulumi config set --path gpuOperatorValues.driver.version 580.95.05",
        ),
    ],
)
def test_driver_is_not_replaced_under_trainings(
    cluster: Path, wanted: dict[str, str], back: str
) -> None:
    """A change that brings another driver's container is refused while trainings use the GPUs. The
    operator would cordon their nodes, fail to evict their pods because of /dev/shm, and leave the
    nodes cordoned, so that the next start of a training would find none.
    """
    with_trainings(cluster)
    done = guard(cluster, **wanted)
    assert done.returncode == 1
    assert "the GPU Operator is not changed" in done.stdout
    assert "trainings use the driver that it would replace: disttrain/train-0." in done.stdout
    assert "./disttrain stop" in done.stdout
    assert back in done.stdout


def test_driver_that_stays_disturbs_no_training(cluster: Path) -> None:
    """Trainings keep nobody from changes that leave the driver, and a driver is replaced where no
    training uses a GPU.
    """
    with_trainings(cluster)
    assert guard(cluster).returncode == 0  # the machines have their own driver
    assert guard(cluster, DRIVER_CHART=OF_CHART).returncode == 0
    assert guard(cluster, DRIVER_CHART=OF_CHART, DRIVER_VERSION="580.95.05").returncode == 0
    with_trainings(cluster, pods="disttrain/on-cpu \n")
    assert guard(cluster, DRIVER_CHART="v26.7.0").returncode == 0
    with_trainings(cluster)
    (cluster / "policies").write_text("")  # the release was never installed
    assert guard(cluster, DRIVER_CHART="v26.7.0").returncode == 0
