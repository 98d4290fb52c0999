"""A user who may work only in one namespace trains on a claim of a storage class.

The class has no provisioner. The test makes the volumes, and is so a stand-in for a driver.
"""

import json
import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.lab import Lab, run_settings, wait_for

TEAM, CLASS, CLAIM, ANN = "team-a", "team-disks", "disttrain-pvc-class", "ann"
GIVEN = "given"  # the name of a claim that somebody has given to the team, and of its volume
FIRST, SECOND = 20, 40
# A number from the range that OpenShift would give to the namespace; the image knows no such user.
UID = 1000680000
COMMON = {
    "namespace": TEAM,
    "namespaceExisting": "use",
    "processesPerPod": "1",
    "podUser": str(UID),
    "run.checkpoint.interval": "10",
}


def volume(name: str, folder: Path, class_name: str) -> dict[str, Any]:
    """Return a volume on a folder that pods may write to; it would be deleted with its claim."""
    folder.mkdir()
    os.chown(folder, UID, UID)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "50Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }


def only_users_from(first: int) -> list[dict[str, Any]]:
    """Return a policy that is a stand-in for OpenShift's `restricted-v2`, and its binding.

    It refuses pods of the team if their user, or the group of their volumes, is below `first`.
    """
    security = "object.spec.?securityContext"
    asked = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": TEAM}}
    rules = {
        "matchConstraints": {"resourceRules": [{**asked, "resources": ["pods"]}]},
        "validations": [
            {
                "expression": f"{security}.?{field}.orValue({first}) >= {first}",
                "message": f"{field}: Invalid value: must be in the ranges of the namespace",
            }
            for field in ("runAsUser", "fsGroup")
        ],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}}
    bound = {"policyName": TEAM, "validationActions": ["Deny"], "matchResources": here}
    return [
        {**api, "kind": "ValidatingAdmissionPolicy", "spec": rules},
        {**api, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    ]


def of_the_team(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": TEAM},
        **fields,
    }


@pytest.fixture(scope="module")
def folders(lab: Lab) -> Iterator[Path]:
    """Make what an administrator would: a namespace, a class, two volumes on folders, and a claim.

    It yields the folder that has the volumes' folders.
    """
    place = lab.cluster.data_root.parent / "team"
    place.mkdir()
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": GIVEN,
        "resources": {"requests": {"storage": "50Gi"}},
    }
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}},
        of_the_team("ServiceAccount", ANN),
        of_the_team("ConfigMap", "theirs"),
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
        },
        volume(CLASS, place / CLASS, CLASS),
        volume(GIVEN, place / GIVEN, ""),
        of_the_team("PersistentVolumeClaim", GIVEN, spec=claim),
        *only_users_from(UID),
    ]
    apply(lab, lab.scratch / "team.yaml", yaml.safe_dump_all(objects))
    bound = "--for=jsonpath={.status.phase}=Bound"
    lab.kubectl("wait", f"pvc/{GIVEN}", bound, "--timeout=300s", namespace=TEAM)
    yield place
    lab.kubectl("delete", "namespace", TEAM)
    lab.kubectl("delete", "persistentvolume", CLASS, GIVEN, "--ignore-not-found")
    lab.kubectl("delete", "storageclass", CLASS)
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        lab.kubectl("delete", kind, TEAM)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def kubeconfig(lab: Lab, folders: Path) -> Path:
    """Return the kubeconfig of the user Ann."""
    token = lab.kubectl("create", "token", ANN, "--duration=8h", namespace=TEAM).strip()
    content = yaml.safe_load(lab.cluster.kubeconfig.read_text())
    content["users"][0]["user"] = {"token": token}
    file = lab.scratch / "ann.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.fixture(scope="module")
def stack(lab: Lab, kubeconfig: Path) -> Iterator[Stack]:
    """Yield Ann's stack, which is not up."""
    made = lab.stack(
        "e2e-team",
        "sandbox",
        {
            **run_settings("e2e-team", FIRST),
            **COMMON,
            "storage": "storage-class",
            "storageOptions.className": CLASS,
            "kubeconfig": str(kubeconfig),
        },
    )
    yield made
    made.destroy()


@pytest.fixture(scope="module")
def role(lab: Lab, stack: Stack) -> dict[str, Any]:
    """Return the role that the preview has printed for a user without rights; Ann has it from now
    on.
    """
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = str(refused.value)
    assert "its user may not do all that this stack needs" in said
    shown = said.partition("bind them to the user:\n")[2]
    roles = textwrap.dedent(shown.partition("    error: ")[0])
    (only,) = yaml.safe_load_all(roles)  # a role of one namespace, and none of the whole cluster
    apply(lab, lab.scratch / "role.yaml", roles)
    who = f"--serviceaccount={TEAM}:{ANN}"
    name = only["metadata"]["name"]
    lab.kubectl("create", "rolebinding", ANN, f"--role={name}", who, namespace=TEAM)
    asks = f"kubectl -n {TEAM} auth can-i get pods --as=system:serviceaccount:{TEAM}:{ANN} || true"
    wait_for("the API server to know the role", lambda: lab.shell(asks).strip() == "yes", 120)
    return only


def apply(lab: Lab, file: Path, text: str) -> None:
    """Run `kubectl apply` as the administrator."""
    file.write_text(text)
    lab.kubectl("apply", "-f", str(file), namespace=TEAM)
    file.unlink()


def claim_as_it_is(lab: Lab, name: str = CLAIM) -> dict[str, Any]:
    """Return the claim, without what the cluster itself writes into it."""
    item = lab.get("persistentvolumeclaim", name, namespace=TEAM)
    about = item["metadata"]
    return {key: about.get(key) for key in ("uid", "labels", "annotations")} | {
        "spec": item["spec"]
    }


def names_of(lab: Lab, kind: str) -> set[str]:
    return {item["metadata"]["name"] for item in lab.get(kind, namespace=TEAM)["items"]}


def done_step(folder: Path, run: str) -> int:
    return json.loads((folder / "runs" / run / "done.json").read_text())["step"]


def wait_complete(lab: Lab) -> None:
    job = "job/train-singlepod"
    lab.kubectl("wait", job, "--for=condition=Complete", "--timeout=400s", namespace=TEAM)


def test_missing_rights_come_as_a_role_that_is_enough(stack: Stack, role: dict[str, Any]) -> None:
    """If a user lacks rights, the preview prints a role, and that role as it stands is enough.

    The role is for one namespace only.
    """
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", TEAM)
    stack.preview()


def test_user_outside_of_the_range_is_refused(stack: Stack, role: dict[str, Any]) -> None:
    """If the namespace does not allow the user of `podUser`, the preview refuses, and names the
    setting.
    """
    assert role
    stack.set_all({"podUser": "1000"})
    said = "podUser: the cluster would refuse the training's pods in namespace team-a: .*runAsUser"
    with pytest.raises(PulumiFailedError, match=said):
        stack.preview()
    stack.set_all({"podUser": str(UID)})


def test_claim_of_a_class_outlives_its_stack_and_is_taken_up_again(
    lab: Lab, stack: Stack, role: dict[str, Any], folders: Path
) -> None:
    """`destroy` keeps the claim of a storage class, and the next `up` uses it again.

    The volume's reclaim policy is `Delete`, so without its claim the volume and the data would be
    gone.
    """
    assert role
    stack.set_all({"run.train.max_steps": str(FIRST), "run.eval.interval": str(FIRST)})
    stack.up()
    wait_complete(lab)
    assert done_step(folders / CLASS, "e2e-team") == FIRST
    before = claim_as_it_is(lab)
    assert before["spec"]["volumeName"] == before["spec"]["storageClassName"] == CLASS
    stack.destroy()
    assert claim_as_it_is(lab)["uid"] == before["uid"]
    assert lab.get("persistentvolume", CLASS)["status"]["phase"] == "Bound"
    assert done_step(folders / CLASS, "e2e-team") == FIRST
    assert names_of(lab, "configmap") == {"kube-root-ca.crt", "theirs"}
    assert names_of(lab, "job") == names_of(lab, "secret") == set()
    wait_for("the last pod to be gone", lambda: not names_of(lab, "pod"), 120)
    stack.set_all({"run.train.max_steps": str(SECOND), "run.eval.interval": str(SECOND)})
    stack.up()
    wait_complete(lab)
    assert claim_as_it_is(lab)["uid"] == before["uid"]
    assert done_step(folders / CLASS, "e2e-team") == SECOND
    said = lab.kubectl("logs", "job/train-singlepod", namespace=TEAM)
    assert f"continuing after step {FIRST}" in said
    stack.destroy()


def test_claim_of_somebody_else_is_used_and_stays_as_it_is(
    lab: Lab, role: dict[str, Any], kubeconfig: Path, folders: Path
) -> None:
    """A run can train on a claim that somebody else has made, and `destroy` leaves it unchanged."""
    assert role
    settings = {
        **run_settings("e2e-guest", FIRST),
        **COMMON,
        "storage": "existing-claim",
        "storageOptions.claimName": GIVEN,
        "kubeconfig": str(kubeconfig),
    }
    guest = lab.stack("e2e-guest", "sandbox", settings)
    before = claim_as_it_is(lab, GIVEN)
    try:
        guest.up()
        wait_complete(lab)
        assert done_step(folders / GIVEN, "e2e-guest") == FIRST
    finally:
        guest.destroy()
    assert claim_as_it_is(lab, GIVEN) == before
    assert done_step(folders / GIVEN, "e2e-guest") == FIRST
