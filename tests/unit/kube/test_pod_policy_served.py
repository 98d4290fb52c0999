"""A cluster that is too old for `podPolicy` is refused before anything is made there."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from infra import cluster_check
from infra.kube.api_server.access import Access
from infra.kube.api_server.findings import Findings
from infra.kube.volumes.storage_findings import StorageNeeds
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.settings.reading import read, refusal
from tests.unit.stacks import deploy

RULES = "/apis/admissionregistration.k8s.io/v1"
VOLUME = StorageNeeds(
    namespace="ml", claim="c", is_there=False, class_name="", access_mode="", size="", pods=0
)


class Cluster(ApiServer):
    """A cluster that serves these kinds in the API version of RULES."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        del query, body
        if method == "POST":
            return {"status": {"allowed": True}}
        return {"resources": [{"kind": kind} for kind in self.kinds]} if path == RULES else None


@pytest.mark.parametrize(
    ("kinds", "action", "words"),
    [
        (["ValidatingWebhookConfiguration"], "deny", "podPolicy: 'deny' cannot be used: the clust"),
        (["ValidatingWebhookConfiguration"], "none", ""),
        (["ValidatingAdmissionPolicy"], "warn", ""),
    ],
)
def test_cluster_without_the_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch, kinds: list[str], action: str, words: str
) -> None:
    """The preview refuses `podPolicy` on a cluster that does not serve the policy's kind. A preview
    of the object itself shows nothing, so `up` would fail after it had made a part of the platform.
    """
    quick = nullcontext(api_of(Cluster(*kinds)))
    monkeypatch.setattr(cluster_check, "read_only_api", lambda *_: quick)
    installed = cluster_check.Installed("dev", pod_policy=action)
    found = cluster_check.ask(Access(kubeconfig="{}"), VOLUME, [], None, installed)
    assert found.notes == []
    assert [each[: len(words)] for each in found.problems] == ([words] if words else [])


def test_k3s_without_the_kind_is_refused() -> None:
    """A release of k3s without the kind is refused with the settings."""
    old = {"k3sVersion": "v1.29.12+k3s1", "gpuOperator": False}
    said = refusal({**old, "podPolicy": "warn"})
    assert "podPolicy: 'warn' cannot be used: k3sVersion is v1.29.12+k3s1, and Kubernetes" in said
    assert read({**old, "podPolicy": "none"}).platform
    assert read({**old, "podPolicy": "warn", "k3sExisting": "adopt"}).platform
    assert read({**old, "podPolicy": "warn", "k3sVersion": "v1.30.8+k3s1"}).platform


def test_preview_asks_whether_the_cluster_serves_it(tmp_path: Path) -> None:
    """The cluster of the stack's own platform is asked about the setting's policy."""
    asked: list[cluster_check.Installed] = []

    def ask(*given: Any) -> Findings:
        asked.append(given[4])
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        deploy("sandbox", tmp_path, {"podPolicy": "warn"})
    assert [each.pod_policy for each in asked] == ["warn"]
