"""Checks of the volume on which Prometheus keeps its numbers, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.controllers.kube_prometheus_stack import CLAIM
from infra.storages.kind import claim_manifest
from tests.kube.lab import Lab, Run

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture
def run(lab: Lab) -> Iterator[Run]:
    """Yield a run in a cluster with a storage class that nothing makes volumes for."""
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    about = {"metadata": {"name": "fast"}, "provisioner": "example.com/disks"}
    lab.api.create(CLASSES, {**head, **about})
    yield Run(lab, lab.namespace(), "dev")
    lab.api.delete(f"{CLASSES}/fast", {})


def job(run: Run, **more: Any) -> dict[str, Any]:
    """Return the input of the task `monitoring-claim`, for 20 GiB of the class `fast`."""
    wanted = {"claim": CLAIM, "class_name": "fast", "gib": 20, "class_seconds": 0}
    return {**run.job(), "claim_namespace": run.namespace, **wanted, **more}


def test_class_that_is_there_is_enough(lab: Lab, run: Run) -> None:
    assert lab.run("monitoring-claim", "create", job(run)) == (0, "")
    assert lab.run("monitoring-claim", "delete", job(run)) == (0, "")
    assert lab.run("monitoring-claim", "create", job(run, claim_namespace="not-there")) == (0, "")


def test_class_that_is_not_there_is_named_with_those_that_are(lab: Lab, run: Run) -> None:
    status, output = lab.run("monitoring-claim", "create", job(run, class_name="slow"))
    assert status == 1
    assert "monitoringStorageClass: 'slow' cannot be used: the cluster has no such" in output
    assert "it has fast. Set one of them" in output


def test_claim_that_holds_numbers_is_not_changed(lab: Lab, run: Run) -> None:
    """`up` refuses another size or class for a claim that Prometheus has already.

    Otherwise the operator of Prometheus would go on with the old claim, and not say so.
    """
    path = f"/api/v1/namespaces/{run.namespace}/persistentvolumeclaims"
    made = claim_manifest(run.namespace, "ReadWriteOnce", "20Gi", class_name="fast")
    lab.api.create(path, {**made, "metadata": {"name": CLAIM, "namespace": run.namespace}})
    assert lab.run("monitoring-claim", "create", job(run)) == (0, "")
    status, output = lab.run("monitoring-claim", "create", job(run, gib=40))
    assert status == 1
    assert f"monitoringStorageGib: '40Gi' cannot be used for the claim {CLAIM}" in output
    assert "asks for 20Gi, because this stack does not make it larger" in output
    assert f"kubectl -n {run.namespace} patch persistentvolumeclaim {CLAIM} -p" in output
    assert '{"spec":{"resources":{"requests":{"storage":"40Gi"}}}}' in output
    head = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    other = {"metadata": {"name": "other"}, "provisioner": "example.com/disks"}
    lab.api.create(CLASSES, {**head, **other})
    status, output = lab.run("monitoring-claim", "create", job(run, class_name="other"))
    lab.api.delete(f"{CLASSES}/other", {})
    assert status == 1
    assert "monitoringStorageClass: 'other' cannot be used for the claim" in output
    assert "has fast, because a claim cannot change it. Set fast again" in output
