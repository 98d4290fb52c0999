"""Namespaces of OpenShift, each of which has its own range of users for pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods, pods_findings
from tests.unit.kube.server import ApiServer, Json, api_of

RANGE = "openshift.io/sa.scc.uid-range"


class Cluster(ApiServer):
    """A stand-in for a cluster with a namespace with this range; None: it may not be read."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "POST":
            return body
        if path == "/api/v1/namespaces/ml":
            if self._text is None:
                raise ApiError(403, "forbidden")
            return {"metadata": {"name": "ml", "annotations": {RANGE: self._text}}}
        node = {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"pods": "9"}}}
        items = {"/api/v1/nodes": [node], "/api/v1/namespaces/ml/resourcequotas": list[Json]()}
        return {"items": items[path]} if path in items else None


def notes(text: str | None, user: int) -> list[str]:
    spec: Json = {"containers": [{"name": "t", "resources": {}}]}
    pod = {"metadata": {}, "spec": {**spec, "securityContext": {"runAsUser": user}}}
    found = pods_findings(api_of(Cluster(text)), RunPods("ml", pod, 1, grows=False))
    assert found.problems == []
    return found.notes


@pytest.mark.parametrize("text", ["1000680000/10000", "1000680000-1000689999"])
def test_user_outside_the_range_is_said(text: str) -> None:
    """A note names the user to set if the pods' user is not in the range of the namespace.
    OpenShift lets an administrator make any pod, so the trial of the preview succeeds. But it then
    lets no Job make these pods, and says so only in events.
    """
    (note,) = notes(text, 1000)
    assert "run as users 1000680000 to 1000689999" in note
    assert note.endswith("pulumi config set podUser 1000680000")
    assert notes(text, 1000680000) == notes(text, 1000689999) == []
    assert len(notes(text, 1000690000)) == 1


def test_other_namespaces_have_no_range() -> None:
    """Nothing is said if the namespace has no such range, or may not be read."""
    assert notes("", 1000) == notes("many", 1000) == notes(None, 1000) == []
