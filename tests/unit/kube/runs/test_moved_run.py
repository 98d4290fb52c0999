"""A run whose settings name another namespace first saves and ends in its former namespace.

The API server is a stand-in here; tests/kube/test_hand_over.py asks a real one.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.names import (
    COMPONENT_LABEL,
    OWNER_LABEL,
    RECORD_LABEL,
    RUN_RECORD,
    SUSPENDED_BY_ANNOTATION,
    TRAINING,
)
from infra.kube.record import ALL, Record, record_path
from infra.kube.runs import moved_run
from infra.kube.runs.moved_run import end_in_former_namespace
from infra.kube.say import MAX_LINE_CHARACTERS
from infra.kube.workload import Workload
from infra.run import former_namespaces
from infra.run.former_namespaces import left_behind
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.stacks import deploy

OLD, NEW, OTHERS = "disttrain", "another", "theirs"
OURS = replace(RECORD, owner="mine-1234", grace_seconds=600)
NAMESPACE = "/api/v1/namespaces/{}"


OF_JOBSET = Workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train-jobset")


class Server(ApiServer):
    """A cluster with records of runs. The pod of our run goes when its workload is suspended.

    Args:
        records: the namespaces and records of the runs.
        forbidden: the beginnings of paths that this user may not read.
    """

    def __init__(self, *records: tuple[str, Record], forbidden: tuple[str, ...] = ()) -> None:
        self.records = {
            record_path(where, each.owner): each.to_object(where) for where, each in records
        }
        self.suspended: list[str] = []
        self.forbidden = forbidden
        self.pod_goes = True

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if any(path.startswith(each) for each in self.forbidden):
            raise ApiError(403, "no")
        if path == ALL:
            selector = query["labelSelector"].split(",")
            wanted = dict(word.split("=") for word in selector)
            assert wanted[RECORD_LABEL] == RUN_RECORD
            items = [
                each
                for each in self.records.values()
                if wanted.items() <= each["metadata"]["labels"].items()
            ]
            return {"items": items}
        if path in self.records:
            if method == "DELETE":
                return self.records.pop(path)
            if method == "PATCH":
                notes = body["metadata"]["annotations"]
                self.records[path]["metadata"]["annotations"] |= notes
            return self.records[path]
        if path == "/apis/batch/v1":
            return {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}
        if path.endswith("/jobs/train-singlepod"):
            if method == "PATCH":
                assert body == OURS.suspend
                self.suspended.append(path.split("/")[-3])
            return {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "metadata": {"name": "train-singlepod", "labels": {OWNER_LABEL: OURS.owner}},
            }
        if path.endswith("/pods"):
            there = not (self.pod_goes and self.suspended)
            labels = f"{COMPONENT_LABEL}={TRAINING},{OWNER_LABEL}={OURS.owner}"
            assert query["labelSelector"] == labels
            return {"items": [POD] if there else []}
        return None


POD = {
    "metadata": {"name": "train-singlepod-x", "namespace": OLD},
    "spec": {},
    "status": {"phase": "Running"},
}


def end(
    server: Server, monkeypatch: pytest.MonkeyPatch, former: tuple[str, ...] = ()
) -> tuple[str, list[str]]:
    """Return the error and the printed lines of a run that moves to the namespace `another`."""
    said: list[str] = []
    for module in (moved_run, waiting):
        monkeypatch.setattr(module, "say", said.append)
    monkeypatch.setattr(waiting, "time", server)
    api = api_of(server)
    fields = {"former_namespaces": list(former)} if former else {}
    try:
        end_in_former_namespace(Job(api.access, NEW, OURS.owner, "dev", fields), api)
    except TaskError as error:
        return str(error), said
    return "", said


@pytest.mark.parametrize(
    ("forbidden", "former"),
    [((), ()), ((), (OLD,)), ((ALL,), (OLD,)), ((ALL,), ("gone", NEW, OLD))],
    ids=["listed", "listed-and-known", "known", "one-of-several"],
)
def test_run_saves_and_ends_where_it_was(
    monkeypatch: pytest.MonkeyPatch, forbidden: tuple[str, ...], former: tuple[str, ...]
) -> None:
    """A run that moves saves and ends in its former namespace, and other runs stay. This also works
    for a user who may not list the records of the whole cluster. Otherwise the old and the new pods
    would wait for each other.
    """
    other = replace(OURS, owner="other-12")
    server = Server((OLD, OURS), (OTHERS, other), forbidden=forbidden)
    problem, said = end(server, monkeypatch, former)
    assert problem == ""
    assert f"Job train-singlepod of this stack in namespace {OLD} is asked to save" in said[0]
    assert server.suspended == [OLD]
    assert [*server.records] == [record_path(OTHERS, other.owner)]


def test_run_of_a_kind_that_has_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a former namespace whose kind the cluster no longer has is ended by removing its
    record. Its objects went with the definition of the kind. Otherwise each `up` would fail.
    """
    server = Server((OLD, replace(OURS, workload=OF_JOBSET)))
    server.suspended.append("its pods went with it")
    assert end(server, monkeypatch)[0] == ""
    assert server.records == {}


def test_run_that_is_here_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that an earlier `up` has moved already changes nothing in its former namespace."""
    server = Server((NEW, OURS), (OLD, OURS))
    assert end(server, monkeypatch, (OLD,)) == ("", [])
    assert server.suspended == []
    assert len(server.records) == 2


def test_nothing_is_said_of_a_new_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new run prints nothing, whether or not the user may list all records."""
    for forbidden in ((), (ALL,)):
        assert end(Server(forbidden=forbidden), monkeypatch) == ("", [])


def test_namespace_that_may_not_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former namespace that may not be read is printed, with the missing right and the command
    for somebody who has it.
    """
    server = Server((OLD, OURS), forbidden=(ALL, NAMESPACE.format(OLD)))
    problem, (said,) = end(server, monkeypatch, (OLD,))
    assert problem == ""
    assert f"the run of this stack was in namespace {OLD}" in said
    assert "these credentials may not get ConfigMaps there" in said
    selector = f"{COMPONENT_LABEL}={TRAINING},{OWNER_LABEL}={OURS.owner}"
    assert f"\n  kubectl get pods --namespace {OLD} --selector {selector}" in said
    assert max(map(len, said.splitlines())) <= MAX_LINE_CHARACTERS, "it would be cut"


def test_who_suspended_it_is_noted_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says who suspended the run before the pods end, and is removed last. So the next
    `up` completes the move after an interrupted one.
    """
    server = Server((OLD, OURS))
    server.pod_goes = False
    problem, _ = end(server, monkeypatch)
    assert "waited 660 s for the pods of Job train-singlepod in namespace disttrain" in problem
    assert "train-singlepod-x" in problem
    record = server.records[record_path(OLD, OURS.owner)]
    assert record["metadata"]["annotations"][SUSPENDED_BY_ANNOTATION] == "dev"


@pytest.mark.parametrize(
    ("outputs", "left"),
    [
        ({}, []),
        ({"namespace": NEW}, []),
        ({"namespace": OLD}, [OLD]),
        ({"namespace": NEW, "formerNamespaces": OLD}, [OLD]),
        ({"namespace": OLD, "formerNamespaces": NEW}, [OLD]),
        ({"namespace": OLD, "formerNamespaces": f"first {OLD} {NEW}"}, ["first", OLD]),
        ({"namespace": "", "formerNamespaces": None}, []),
    ],
)
def test_namespaces_of_before_are_kept_in_the_outputs(outputs: Json, left: list[str]) -> None:
    """The output `formerNamespaces` keeps all namespaces that the stack has used before, also one
    that was refused. The second `up` finds the same ones as the first, so it changes nothing.
    """
    assert left_behind(outputs, NEW) == left
    after = {"namespace": NEW, "formerNamespaces": " ".join(left)}
    assert left_behind(after, NEW) == left


@pytest.mark.parametrize("stack", ["sandbox", "sandbox-multipod"])
def test_program_reads_the_outputs_of_its_own_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """The program reads the former namespaces from the outputs of its own stack, and passes them to
    the hand-over and to the next `up`. A new stack has no outputs.
    """

    async def answer(token: str, arguments: Json) -> Json:
        assert token == "pulumi:pulumi:readStackOutputs"
        assert arguments["name"].endswith(f"/{stack}")
        return {"outputs": {"namespace": "before"}}

    def handed_over() -> tuple[object, object]:
        made = deploy(stack, tmp_path)
        job = json.loads(made.one("training-hand-over").inputs["stdin"])
        return job.get("former_namespaces"), made.outputs["formerNamespaces"]

    assert handed_over() == (None, "")
    monkeypatch.setattr(former_namespaces, "invoke_async", answer)
    assert handed_over() == (["before"], "before")
