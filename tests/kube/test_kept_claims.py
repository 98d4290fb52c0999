"""Namespaces and claims that this program must not take over, on a real API server."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from infra.kube import names
from infra.kube.kept import KEPT_ANNOTATION
from infra.names import CLAIM, PROXY_CONFIG
from infra.storages.kind import claim_manifest
from tests.kube.lab import Json, Lab, Run

CLAIMS = "/api/v1/namespaces/{}/persistentvolumeclaims"
CLASS = {"claim": CLAIM, "class_name": "efs", "access_mode": "ReadWriteMany"}


@pytest.fixture(autouse=True)
def storage_class(lab: Lab) -> Iterator[None]:
    """Let the cluster have the class of these claims. Nothing makes volumes for it."""
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    about = {"metadata": {"name": "efs"}, "provisioner": "example.com/disks"}
    lab.api.create(classes, {**head, **about})
    yield
    lab.api.delete(f"{classes}/efs", {})


def own_claim(lab: Lab, namespace: str, owner: str) -> Json:
    """Make a claim of a storage class, as a stack makes it, and return it."""
    claim = claim_manifest(namespace, "ReadWriteMany", "1Mi", class_name="efs")
    labels = {names.OWNER_LABEL: owner, names.STACK_LABEL: "dev"}
    claim["metadata"]["labels"] = labels if owner else {}
    return lab.api.create(CLAIMS.format(namespace), claim)


def labels_and_notes(item: Json | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the labels and the annotations of an object."""
    assert item
    return item["metadata"].get("labels") or {}, item["metadata"].get("annotations") or {}


def test_namespace_that_exists_is_used_and_left_unchanged(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    path = f"/api/v1/namespaces/{run.namespace}"
    before = lab.api.get(path)
    assert before
    status, output = lab.run("use-namespace", "create", run.job())
    assert (status, output) == (0, f"{before['metadata']['uid']}\n")
    assert lab.run("use-namespace", "delete", run.job()) == (0, "")
    assert lab.api.get(path) == before


def test_namespace_that_cannot_be_used_is_named_with_the_way_out(lab: Lab) -> None:
    missing = Run(lab, f"t-{uuid.uuid4().hex[:8]}", "dev")
    status, output = lab.run("use-namespace", "create", missing.job())
    assert status == 1
    assert f"kubectl create namespace {missing.namespace}" in output
    taken = Run(lab, lab.namespace(), "dev")
    config = {"metadata": {"name": PROXY_CONFIG, "labels": {names.OWNER_LABEL: "somebody"}}}
    maps = f"/api/v1/namespaces/{taken.namespace}/configmaps"
    lab.api.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", **config})
    status, output = lab.run("use-namespace", "create", taken.job())
    assert status == 1
    assert "it holds the platform of a stack of unknown name (owner somebody)" in output
    assert output.endswith("Set another namespace\n")


def test_kept_claim_is_left_and_taken_up_by_its_stack_alone(lab: Lab) -> None:
    """A claim that `destroy` keeps can be used again by a stack of the same name, and by no other.

    The next `up` has another owner id, so the kept claim is marked with the stack's name instead.
    """
    run = Run(lab, lab.namespace(), "dev")
    own_claim(lab, run.namespace, run.owner)
    job = run.job() | CLASS
    path = f"{CLAIMS.format(run.namespace)}/{CLAIM}"
    assert lab.run("keep-claim", "create", job) == (0, "")
    assert lab.run("keep-claim", "delete", job)[0] == 0
    assert labels_and_notes(lab.api.get(path))[0][names.OWNER_LABEL] == run.owner
    status, output = lab.run("keep-claim", "delete", job | {"kept": True})
    assert status == 0
    assert f"claim {CLAIM} with the data stays in the cluster" in output
    labels, notes = labels_and_notes(lab.api.get(path))
    assert names.OWNER_LABEL not in labels
    assert notes[KEPT_ANNOTATION] == "dev"
    again = Run(lab, run.namespace, "dev")
    status, output = lab.run("keep-claim", "create", again.job() | CLASS)
    assert status == 0
    assert "is taken up again" in output
    other = Run(lab, run.namespace, "other")
    status, output = lab.run("keep-claim", "create", other.job() | CLASS)
    assert status == 1
    assert f"the claim {run.namespace}/{CLAIM} exists and belongs to stack dev" in output


def test_claim_of_somebody_else_is_refused_and_stays_as_it_is(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    own_claim(lab, run.namespace, "")
    job = run.job() | CLASS | {"kept": True}
    status, output = lab.run("keep-claim", "create", job)
    assert status == 1
    assert "was not made by this program" in output
    assert "set storage: existing-claim" in output
    assert lab.run("keep-claim", "delete", job) == (0, "")
    path = f"{CLAIMS.format(run.namespace)}/{CLAIM}"
    labels, notes = labels_and_notes(lab.api.get(path))
    assert labels == {}
    assert KEPT_ANNOTATION not in notes


def test_claim_that_runs_of_others_mount_is_not_left(lab: Lab) -> None:
    """`up` refuses to change to another claim while runs of other stacks use the present one.

    Otherwise `up` would delete that claim, and wait for the pods of the others until its limit.
    """
    run = Run(lab, lab.namespace(), "dev")
    claim = claim_manifest(run.namespace, "ReadWriteMany", "1Mi", class_name="efs")
    claim["metadata"]["labels"] = {
        names.OWNER_LABEL: run.owner,
        names.COMPONENT_LABEL: "storage",
    }
    lab.api.create(CLAIMS.format(run.namespace), claim)
    record = {
        "name": "run-theirs",
        "labels": {names.RECORD_LABEL: names.RUN_RECORD, names.OWNER_LABEL: "theirs"},
        "annotations": {names.STACK_ANNOTATION: "organization/disttrain/multipod"},
    }
    maps = f"/api/v1/namespaces/{run.namespace}/configmaps"
    lab.api.create(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": record})
    same, other = (run.job() | {"volume": "none", "claim": name} for name in (CLAIM, "another"))
    assert lab.run("free-volume", "create", same) == (0, "")
    for task, more in (("free-volume", {}), ("keep-claim", CLASS), ("use-claim", {})):
        status, output = lab.run(task, "create", {**other, **more, "claim": "another"})
        assert status == 1
        assert f"another claim than {CLAIM} of namespace {run.namespace}" in output
        assert "pulumi destroy --stack organization/disttrain/multipod" in output
    lab.api.delete(f"{maps}/run-theirs", {})
    assert lab.run("free-volume", "create", other) == (0, "")


def test_claim_whose_data_would_be_purged_is_not_left(lab: Lab) -> None:
    """`up` refuses to change to another claim if the last `up` was told to purge the data of this
    one.

    Otherwise it would delete the claim with its data at its end, by the settings of the last `up`,
    even if the present ones say `keep`.
    """
    run = Run(lab, lab.namespace(), "dev")
    claim = claim_manifest(run.namespace, "ReadWriteMany", "1Mi", class_name="efs")
    about = claim["metadata"]
    about["labels"] = {names.OWNER_LABEL: run.owner, names.COMPONENT_LABEL: "storage"}
    about["annotations"] = {names.PURGES_ANNOTATION: names.PURGES_CLAIM}
    lab.api.create(CLAIMS.format(run.namespace), claim)
    same, other = (run.job() | {"volume": "none", "claim": name} for name in (CLAIM, "another"))
    assert lab.run("free-volume", "create", same) == (0, "")
    for task, more in (("free-volume", {}), ("keep-claim", CLASS), ("use-claim", {})):
        status, output = lab.run(task, "create", {**other, **more, "claim": "another"})
        assert status == 1
        assert f"(claim {CLAIM}), because the last `pulumi up` was told" in output
    path = f"{CLAIMS.format(run.namespace)}/{CLAIM}"
    moved = Run(lab, lab.namespace(), "dev").job() | {"owner": run.owner, **CLASS}
    status, output = lab.run("keep-claim", "create", moved)
    assert status == 1
    assert "set the other storage or namespace" in output
    for value in (names.PURGES_FOLDER, None):
        lab.api.patch(path, {"metadata": {"annotations": {names.PURGES_ANNOTATION: value}}})
        assert lab.run("free-volume", "create", other) == (0, "")
    folder = {names.PURGES_ANNOTATION: names.PURGES_FOLDER}
    lab.api.patch(path, {"metadata": {"annotations": folder}})
    status, output = lab.run("free-volume", "create", other | {"has_data_folder": False})
    assert status == 1
    assert "dataOnDestroy: keep" in output


def test_kept_claim_that_would_change_is_refused_by_the_task_too(lab: Lab) -> None:
    run = Run(lab, lab.namespace(), "dev")
    own_claim(lab, run.namespace, run.owner)
    change = {"access_mode": "ReadWriteOnce"}
    status, output = lab.run("keep-claim", "create", run.job() | CLASS | change)
    assert status == 1
    assert "storageOptions.accessMode: 'ReadWriteOnce' cannot be used" in output


def test_kept_namespace_is_left_and_taken_up_by_its_stack(lab: Lab) -> None:
    run = Run(lab, "any", "dev")
    namespace = lab.namespace(run.owner)
    job = run.job() | {"names": [namespace]}
    path = f"/api/v1/namespaces/{namespace}"
    assert lab.run("claim-namespace", "delete", job) == (0, "")
    assert labels_and_notes(lab.api.get(path))[0][names.OWNER_LABEL] == run.owner
    assert lab.run("claim-namespace", "delete", job | {"kept": True})[0] == 0
    assert names.OWNER_LABEL not in labels_and_notes(lab.api.get(path))[0]
    names_ = {"names": [namespace]}
    assert lab.run("claim-namespace", "create", Run(lab, "any", "dev").job() | names_)[0] == 0
    status, output = lab.run("claim-namespace", "create", Run(lab, "any", "x").job() | names_)
    assert status == 1
    assert "was left there with the data of stack dev" in output
