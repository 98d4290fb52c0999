"""`pulumi destroy` of a platform with runs of others, or with a kubeconfig of another cluster than
at the last `up`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.job import Job, parse_job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.record import ALL
from infra.kube.runs import destroy_guard
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

PLACE = "/api/v1/namespaces/disttrain"


@dataclass
class Cluster(ApiServer):
    """A stand-in for a cluster with a namespace that has these labels; None: there is no
    namespace.

    Args:
        labels: the labels of the namespace.
        elsewhere: the records of runs in other namespaces.
    """

    labels: Mapping[str, str] | None
    elsewhere: tuple[Json, ...] = ()

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        del query, body
        assert method == "GET"
        if path == PLACE:
            return None if self.labels is None else {"metadata": {"labels": dict(self.labels)}}
        if path == ALL:
            return {"items": list(self.elsewhere)}
        return {"items": [], "resources": [], "groups": []}


def job(**fields: Any) -> Job:
    """Return the job of a stack that has made the namespace `disttrain`, with these fields."""
    place = {"name": "disttrain", "subject": "the platform"}
    given = {"kubeconfig": "{}", "owner": "ours", "namespace": "disttrain", "stack": "dev"}
    return parse_job(json.dumps({**given, "own_namespaces": [place], **fields}))


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


def test_k3s_stays_while_others_train_in_it() -> None:
    """A stack that has installed k3s removes it with all of its namespaces. So it is not destroyed
    while a run of another stack is in any of them. A stack on a cluster of others removes only its
    own namespace.
    """
    other = replace(RECORD, namespace="team").to_object("team")
    cluster = api_of(Cluster({OWNER_LABEL: "ours"}, (other,)))
    with pytest.raises(TaskError, match=f"runs of other stacks use .*: {RECORD.stack}. Nothing"):
        destroy_guard.delete(job(k3s_is_ours=True), cluster)
    destroy_guard.delete(job(k3s_is_ours=False), cluster)
