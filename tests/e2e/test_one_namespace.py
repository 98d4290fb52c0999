"""A user who may only work in one namespace trains on a claim of a storage class.

The class has no provisioner: the volume is made by the test, which stands in for the driver of a
cluster. The tests build on each other in file order.
"""

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import Lab, run_settings, wait_for

TEAM, CLASS, CLAIM, ANN = "team-a", "team-disks", "disttrain-pvc", "ann"
FIRST, SECOND = 20, 40
UID = 1000
COMMON = {
    "namespace": TEAM,
    "namespaceExisting": "use",
    "processesPerPod": "1",
    "run.checkpoint.interval": "10",
}


@pytest.fixture(scope="module")
def folder(lab: Lab) -> Iterator[Path]:
    """What an administrator has made: the namespace, the class, and a volume on this folder."""
    place = lab.cluster.data_root.parent / "team-volume"
    place.mkdir()
    os.chown(place, UID, UID)
    source: dict[str, Any] = {"hostPath": {"path": str(place), "type": "Directory"}}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ANN, "namespace": TEAM},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": TEAM},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLASS},
            "spec": {
                "capacity": {"storage": "50Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Delete",
                **source,
            },
        },
    ]
    apply(lab, place.parent / "team.yaml", yaml.safe_dump_all(objects))
    yield place
    lab.kubectl("delete", "namespace", TEAM)
    lab.kubectl("delete", "persistentvolume,storageclass", CLASS)
    lab.kubectl("delete", "clusterrole,clusterrolebinding", f"{TEAM}-trains", "--ignore-not-found")


@pytest.fixture(scope="module")
def stack(lab: Lab, folder: Path) -> Iterator[Stack]:
    """Ann's stack, with her own kubeconfig; she has no rights yet."""
    made = lab.stack(
        "e2e-team",
        "sandbox",
        {
            **run_settings("e2e-team", FIRST),
            **COMMON,
            "storage": "storage-class",
            "storageOptions.className": CLASS,
            "kubeconfig": str(kubeconfig_of_ann(lab, folder.parent / "ann.kubeconfig")),
        },
    )
    yield made
    made.destroy()


def apply(lab: Lab, file: Path, text: str) -> None:
    """`kubectl apply` as the administrator."""
    file.write_text(text)
    lab.kubectl("apply", "-f", str(file), namespace=TEAM)
    file.unlink()


def kubeconfig_of_ann(lab: Lab, file: Path) -> Path:
    token = lab.kubectl("create", "token", ANN, "--duration=8h", namespace=TEAM).strip()
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return file


def claim_as_it_is(lab: Lab) -> dict[str, Any]:
    """The claim, without what the cluster itself writes into it."""
    item = lab.get("persistentvolumeclaim", CLAIM, namespace=TEAM)
    about = item["metadata"]
    return {key: about.get(key) for key in ("uid", "labels", "annotations")} | {
        "spec": item["spec"]
    }


def names_of(lab: Lab, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in lab.get(kind, namespace=TEAM)["items"]}


def done_step(folder: Path, run: str) -> int:
    return json.loads((folder / "runs" / run / "done.json").read_text())["step"]


def test_missing_rights_come_as_roles_that_are_enough(lab: Lab, stack: Stack) -> None:
    """What `preview` prints is applied as it stands, and then the stack comes up."""
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = str(refused.value)
    assert "its user may not do all that this stack needs" in said
    shown = said.partition("bind them to the user:\n")[2]
    roles = textwrap.dedent(shown.partition("    error: ")[0])
    (role,) = yaml.safe_load_all(roles)  # one namespace, and nothing of the whole cluster
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", TEAM)
    apply(lab, lab.scratch / "role.yaml", roles)
    who = f"--serviceaccount={TEAM}:{ANN}"
    name = role["metadata"]["name"]
    lab.kubectl("create", "rolebinding", ANN, f"--role={name}", who, namespace=TEAM)
    asks = f"kubectl -n {TEAM} auth can-i get pods --as=system:serviceaccount:{TEAM}:{ANN} || true"
    wait_for("the API server to know the role", lambda: lab.shell(asks).strip() == "yes", 60)
    stack.preview()


def test_user_of_one_namespace_trains_on_a_claim_of_a_class(
    lab: Lab, stack: Stack, folder: Path
) -> None:
    stack.up()
    lab.kubectl(
        "wait", "job/train-singlepod", "--for=condition=Complete", "--timeout=600s", namespace=TEAM
    )
    assert done_step(folder, "e2e-team") == FIRST
    claim = lab.get("persistentvolumeclaim", CLAIM, namespace=TEAM)
    assert claim["spec"]["volumeName"] == CLASS
    assert claim["spec"]["storageClassName"] == CLASS


def test_destroy_leaves_the_claim_and_all_that_is_not_ours(
    lab: Lab, stack: Stack, folder: Path
) -> None:
    """The volume's reclaim policy is Delete: without its claim it would be gone with the data."""
    before = claim_as_it_is(lab)
    stack.destroy()
    assert claim_as_it_is(lab)["uid"] == before["uid"]
    assert lab.get("persistentvolume", CLASS)["status"]["phase"] == "Bound"
    assert done_step(folder, "e2e-team") == FIRST
    assert names_of(lab, "configmap") == {"kube-root-ca.crt", "theirs"}
    assert names_of(lab, "job") == names_of(lab, "secret") == set()
    wait_for("the last pod to be gone", lambda: not names_of(lab, "pod"), 60)


def test_next_up_takes_the_claim_up_again_and_goes_on(lab: Lab, stack: Stack, folder: Path) -> None:
    before = claim_as_it_is(lab)
    stack.set("run.train.max_steps", str(SECOND))
    stack.set("run.eval.interval", str(SECOND))
    stack.up()
    lab.kubectl(
        "wait", "job/train-singlepod", "--for=condition=Complete", "--timeout=600s", namespace=TEAM
    )
    assert claim_as_it_is(lab)["uid"] == before["uid"]
    assert done_step(folder, "e2e-team") == SECOND
    said = lab.kubectl("logs", "job/train-singlepod", namespace=TEAM)
    assert f"continuing after step {FIRST}" in said
    stack.destroy()


def test_claim_of_somebody_else_is_used_and_stays_as_it_is(
    lab: Lab, stack: Stack, folder: Path
) -> None:
    """The claim that the stack before has left is somebody else's to this one."""
    assert stack
    settings = {
        **run_settings("e2e-guest", FIRST),
        **COMMON,
        "storage": "existing-claim",
        "storageOptions.claimName": CLAIM,
        "kubeconfig": str(folder.parent / "ann.kubeconfig"),
    }
    guest = lab.stack("e2e-guest", "sandbox", settings)
    before = claim_as_it_is(lab)
    try:
        guest.up()
        lab.kubectl(
            "wait",
            "job/train-singlepod",
            "--for=condition=Complete",
            "--timeout=600s",
            namespace=TEAM,
        )
        assert done_step(folder, "e2e-guest") == FIRST
    finally:
        guest.destroy()
    assert claim_as_it_is(lab) == before
    assert done_step(folder, "e2e-guest") == FIRST
