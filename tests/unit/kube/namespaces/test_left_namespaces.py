"""What `up` says if a platform moves to another namespace, or declares its own namespace existing.

The API server is a stand-in here; tests/kube/test_own_namespaces.py asks a real one.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.kept import KEPT_ANNOTATION
from infra.kube.names import (
    COMPONENT_LABEL,
    OWNER_LABEL,
    PURGES_ANNOTATION,
    PURGES_CLAIM,
    RECORD_LABEL,
    RUN_RECORD,
    STACK_ANNOTATION,
)
from infra.kube.namespaces import claim_namespace, use_namespace
from infra.names import CLAIM_OF_CLASS
from tests.unit.kube.server import ApiServer, Json, api_of

NAMESPACES, OLD, NEW = "/api/v1/namespaces", "disttrain", "another"
OURS = {OWNER_LABEL: "mine", COMPONENT_LABEL: "namespace"}
CLAIMS = f"{NAMESPACES}/{OLD}/persistentvolumeclaims"


def item(name: str, labels: Mapping[str, str], **annotations: str) -> Json:
    return {"metadata": {"name": name, "uid": name, "labels": labels, "annotations": annotations}}


class Server(ApiServer):
    """A cluster with the platform's former namespace, a namespace of another platform, and
    `objects`.

    Args:
        objects: lists of objects by the paths of their collections.
        forbidden: the path of a collection that this user may not list.
    """

    def __init__(self, objects: Mapping[str, list[Json]], forbidden: str = "") -> None:
        self.patched: dict[str, Any] = {}
        self._forbidden = forbidden
        self._objects = {
            NAMESPACES: [item(OLD, OURS), item("theirs", {OWNER_LABEL: "other"})],
            f"{NAMESPACES}/{OLD}/configmaps": [],
            **objects,
        }

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "PATCH":
            self.patched[path] = body
            return {}
        assert method == "GET"
        if path == self._forbidden:
            raise ApiError(403, "no")
        folder, _, name = path.rpartition("/")
        for found in self._objects.get(folder, []):
            if found["metadata"]["name"] == name:
                return found
        if path == "/api/v1":
            kinds = {"ConfigMap": "configmaps", "PersistentVolumeClaim": "persistentvolumeclaims"}
            served = [
                {"kind": kind, "name": plural, "namespaced": True, "verbs": ["list", "delete"]}
                for kind, plural in kinds.items()
            ]
            return {"groupVersion": "v1", "resources": served}
        if path == "/apis":
            return {"groups": []}
        if path in self._objects:
            wanted = dict(
                word.split("=") for word in query.get("labelSelector", "").split(",") if word
            )
            items = [
                each
                for each in self._objects[path]
                if wanted.items() <= each["metadata"]["labels"].items()
            ]
            return {"items": items}
        return None


def said(namespace: str, objects: Mapping[str, list[Json]], *, exists: bool = False) -> str:
    """Return the error of the next `up` with this namespace; empty: `up` goes on."""
    return answer_of(Server(objects), namespace, exists=exists)


def answer_of(server: Server, namespace: str, *, exists: bool = False) -> str:
    """Return the error of the task that claims or uses the namespace; empty: the task succeeds."""
    api = api_of(server)
    job = Job(Access(kubeconfig="{}"), namespace, "mine", "dev", {"names": [namespace]})
    task = use_namespace if exists else claim_namespace
    try:
        task.create(job, api)
    except TaskError as error:
        return str(error)
    return ""


RUN = item("run", {OWNER_LABEL: "guest", RECORD_LABEL: RUN_RECORD}, **{STACK_ANNOTATION: "guests"})
THEIRS = item("logins", {})
NEW_THERE = {NAMESPACES: [item(OLD, OURS), item(NEW, {})]}


@pytest.mark.parametrize("exists", [False, True], ids=["made", "used"])
def test_namespace_with_others_objects_is_not_left(exists: bool) -> None:
    """`up` refuses to move the platform if its former namespace has runs or objects of others.
    Otherwise the namespace would be deleted at the end of `up`, with everything that others have in
    it.
    """
    there = NEW_THERE if exists else {}
    maps = f"{NAMESPACES}/{OLD}/configmaps"
    message = said(NEW, {**there, maps: [RUN]}, exists=exists)
    assert f"this stack would leave namespace {OLD}, and runs of other stacks are there" in message
    assert "pulumi destroy --stack guests" in message
    message = said(NEW, {**there, maps: [THEIRS]}, exists=exists)
    assert f"the platform in namespace {OLD} cannot be taken away" in message
    assert "(ConfigMap logins)" in message
    ours = item("proxy-config", {OWNER_LABEL: "mine"})
    assert said(NEW, {**there, maps: [ours]}, exists=exists) == ""
    assert said(OLD, {maps: [RUN, THEIRS]}) == ""


def test_namespace_that_stays_may_be_left() -> None:
    """A former namespace may hold objects of others if it stays because of the data in its claim.
    It gets the mark of kept objects. If the claim is to be purged, the namespace goes, so the move
    is refused.
    """
    maps = f"{NAMESPACES}/{OLD}/configmaps"
    claim = item(CLAIM_OF_CLASS, {OWNER_LABEL: "mine"})
    server = Server({maps: [THEIRS], CLAIMS: [claim]})
    assert answer_of(server, NEW) == ""
    marks = server.patched[f"{NAMESPACES}/{OLD}"]["metadata"]
    assert marks == {"labels": {OWNER_LABEL: None}, "annotations": {KEPT_ANNOTATION: "dev"}}
    purged = item(CLAIM_OF_CLASS, {OWNER_LABEL: "mine"}, **{PURGES_ANNOTATION: PURGES_CLAIM})
    assert "(ConfigMap logins)" in said(NEW, {maps: [THEIRS], CLAIMS: [purged]})


def test_own_namespace_is_not_somebody_elses() -> None:
    """`namespaceExisting: use` is refused for the namespace that this stack has made. Otherwise it
    would be no resource of the stack any more and would be deleted at the end of `up`. A namespace
    that stays because of its claim, or that is of nobody, is accepted.
    """
    message = said(OLD, {}, exists=True)
    assert f"namespace: '{OLD}' cannot be used with namespaceExisting: use: this stack" in message
    assert "Set namespaceExisting: refuse again" in message
    assert said(OLD, {CLAIMS: [item(CLAIM_OF_CLASS, {OWNER_LABEL: "mine"})]}, exists=True) == ""
    assert said("theirs", {NAMESPACES: [item("theirs", {})]}, exists=True) == ""


@pytest.mark.parametrize("exists", [False, True], ids=["made", "used"])
@pytest.mark.parametrize(
    "other",
    [
        {OWNER_LABEL: "other", COMPONENT_LABEL: "namespace"},
        {OWNER_LABEL: "mine", COMPONENT_LABEL: "controllers"},
    ],
    ids=["another platform", "another part of ours"],
)
def test_only_own_platform_namespaces_are_left(other: dict[str, str], exists: bool) -> None:
    """The check covers only namespaces of this platform. It ignores those of another platform,
    which stay, and those of this platform's controllers, which have a check of their own.
    """
    there = {NAMESPACES: [item("kueue-system", other), *([item(NEW, {})] if exists else [])]}
    maps = "/api/v1/namespaces/kueue-system/configmaps"
    assert said(NEW, {**there, maps: [RUN, THEIRS]}, exists=exists) == ""


def test_namespace_that_is_going_is_no_reason() -> None:
    """A former namespace that is being deleted already does not stop a move of the platform,
    because nobody can keep what is in it.
    """
    going = item(OLD, OURS)
    going["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    maps = f"{NAMESPACES}/{OLD}/configmaps"
    assert said(NEW, {NAMESPACES: [going], maps: [RUN]}) == ""


def test_user_of_one_namespace_gets_no_error() -> None:
    """A user who may not list namespaces can use an existing one. Such a user has made no namespace
    that could be left.
    """
    maps = f"{NAMESPACES}/{OLD}/configmaps"
    assert answer_of(Server({**NEW_THERE, maps: [RUN]}, NAMESPACES), NEW, exists=True) == ""


def test_claim_of_somebody_else_keeps_no_namespace() -> None:
    """A claim of another owner does not make the former namespace stay. The claim would be deleted
    with the namespace, so the refusal names it like other objects.
    """
    claim = item(CLAIM_OF_CLASS, {OWNER_LABEL: "other"})
    message = said(NEW, {CLAIMS: [claim]})
    assert f"(PersistentVolumeClaim {CLAIM_OF_CLASS})" in message
