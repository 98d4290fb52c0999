"""`pulumi destroy` with a kubeconfig of another cluster than at the last `up`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.job import Job, parse_job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.runs import destroy_guard
from tests.unit.kube.server import ApiServer, Json, api_of

PLACE = "/api/v1/namespaces/disttrain"


@dataclass
class Cluster(ApiServer):
    """A stand-in for a cluster with a namespace that has these labels; None: there is no
    namespace.
    """

    labels: Mapping[str, str] | None

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        del query, body
        assert method == "GET"
        if path == PLACE:
            return None if self.labels is None else {"metadata": {"labels": dict(self.labels)}}
        return {"items": [], "resources": [], "groups": []}


def job() -> Job:
    """Return the job of a stack that has made the namespace `disttrain`."""
    place = {"name": "disttrain", "subject": "the platform"}
    given = {"kubeconfig": "{}", "owner": "ours", "namespace": "disttrain", "stack": "dev"}
    return parse_job(json.dumps({**given, "own_namespaces": [place]}))


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, "was not made by this stack"),
        ({OWNER_LABEL: "theirs", STACK_LABEL: "prod"}, "belongs to another stack named prod"),
    ],
    ids=["somebody", "another stack"],
)
def test_namespace_of_others_is_never_deleted(labels: dict[str, str], words: str) -> None:
    """`pulumi destroy` refuses to go on if the namespace belongs to somebody else. The engine
    deletes objects by their names, and the stack of a colleague may have the same names.
    """
    with pytest.raises(TaskError, match="Nothing was deleted") as refused:
        destroy_guard.delete(job(), api_of(Cluster(labels)))
    assert words in str(refused.value)
    assert "such as with another current context" in str(refused.value)


@pytest.mark.parametrize("labels", [None, {OWNER_LABEL: "ours"}], ids=["gone", "ours"])
def test_own_namespace_is_not_in_the_way(labels: dict[str, str] | None) -> None:
    destroy_guard.delete(job(), api_of(Cluster(labels)))
