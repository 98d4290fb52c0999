"""Another storage while `destroy` was told to purge: nothing that holds data goes with the old one.

The engine deletes what is no resource any more by the settings of before. So what the first program
registers is put on a stand-in of the cluster, and what the second one asks for is run there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import parse_job
from infra.kube.names import REVISION_LABEL
from infra.kube.volumes import free_volume, keep_claim, use_claim
from infra.kube.volumes.storage_look import StorageNeeds, storage_findings
from infra.names import CLAIM_OF_CLASS
from tests.cli.records import RECORD
from tests.unit import stacks
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.stacks import Deployment, deploy
from tests.unit.storages.other_storages import CLASS, EXISTING, NFS

Up = Callable[..., Deployment]
TASKS = {"data-look": free_volume, "data-keep": keep_claim, "data-use": use_claim}
FOLDER = "/srv/data"
SURE = {"dataRoot": FOLDER, "dataOnDestroy": "purge", "purgeConfirmed": FOLDER}
SURE_OF_CLASS = {**CLASS, "dataOnDestroy": "purge"}
SURE_OF_CLASS |= {"purgeConfirmed": f"disttrain/{CLAIM_OF_CLASS}"}
OTHER_SERVER = {**NFS, "storageOptions": {"server": "other.example.com", "path": "/exports/train"}}
OTHER_PATH = {**NFS, "storageOptions": {"server": "nfs.example.com", "path": "/exports/more"}}
CHANGES_TO_NFS = pytest.mark.parametrize(
    ("changes", "then"),
    [
        ({}, NFS),
        (CLASS, NFS),
        (NFS, OTHER_SERVER),
        (NFS, OTHER_PATH),
        (NFS, {**NFS, "dataSize": "70Gi"}),
        (NFS, {}),
    ],
    ids=["from-folder", "from-class", "server", "path", "size", "to-folder"],
)
TWO_STEPS = "with dataOnDestroy: keep, and run `pulumi up`; then set the other storage or"


class Cluster(ApiServer):
    """Lists the claims that a stack has registered; has the class efs and somebody's claim.

    Args:
        claims: those of the stack.
        runs: the records of the runs that stand there.
    """

    def __init__(self, claims: list[dict[str, Any]], runs: Sequence[dict[str, Any]] = ()) -> None:
        self._claims, self._runs = claims, runs
        self.shows_claims = True  # else this user may not list them

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        del body
        assert method == "GET"
        if path.endswith("/storageclasses/efs"):
            return {"provisioner": "example.com/disks"}
        if path.endswith("/persistentvolumeclaims/lustre"):
            spec = {"accessModes": ["ReadWriteMany"]}
            return {"spec": spec, "status": {"phase": "Bound"}}
        if path.endswith("/persistentvolumeclaims") and not self.shows_claims:
            raise ApiError(403, "no")
        if path.endswith("/persistentvolumeclaims"):
            wanted = [word.split("=") for word in query["labelSelector"].split(",")]
            items = [each for each in self._claims if _has(each, wanted)]
            if path != "/api/v1/persistentvolumeclaims":
                items = [each for each in items if each["metadata"]["namespace"] in path.split("/")]
            return {"items": items}
        if path.endswith("/configmaps"):
            return {"items": self._runs}
        if path.endswith(("/nodes", "/csinodes")):
            return {"items": []}
        return None


def _has(item: Mapping[str, Any], wanted: list[list[str]]) -> bool:
    return all(item["metadata"]["labels"].get(key) == value for key, value in wanted)


def api_with(result: Deployment, *runs: dict[str, Any]) -> Api:
    """What the cluster is after the `up` of this program, and of `runs`."""
    found = [item.inputs for item in result.of_type("kubernetes:core/v1:PersistentVolumeClaim")]
    return api_of(Cluster(found, runs))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Up:
    """What the stack `sandbox` registers with these settings, worked out once."""
    scratch, known = tmp_path_factory.mktemp("stacks"), dict[str, Deployment]()

    def deployed(changes: Mapping[str, object]) -> Deployment:
        key = json.dumps(changes, sort_keys=True)
        if key not in known:
            known[key] = deploy("sandbox", scratch, changes)
        return known[key]

    return deployed


def said(before: Deployment, after: Deployment, *runs: dict[str, Any]) -> str:
    """What the next `up` says where its storage begins; empty: it goes on.

    Args:
        before: what the last `up` has made.
        after: what the next one makes.
        runs: the records of the runs that stand there.
    """
    (name,) = (each.name for each in after.resources if each.name in TASKS)
    job = parse_job(after.one(name).inputs["stdin"])
    try:
        TASKS[name].create(job, api_with(before, *runs))
    except TaskError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("changes", "then"),
    [(SURE, NFS), (SURE, CLASS), (SURE, EXISTING), (SURE_OF_CLASS, NFS), (SURE_OF_CLASS, {})],
    ids=["folder-nfs", "folder-class", "folder-claim", "class-nfs", "class-folder"],
)
def test_purge_of_before_deletes_no_data(
    up: Up, changes: dict[str, object], then: dict[str, object]
) -> None:
    """On a cluster that exists; the settings of now say `keep`, and the data went nevertheless."""
    message = said(up(changes), up(then))
    assert "the last `pulumi up` was told dataOnDestroy: purge" in message
    assert TWO_STEPS in message
    assert message.count("\n") == 0


def test_change_in_two_steps_is_made(up: Up) -> None:
    """`keep` takes the mark from the claim; and without a change there is nothing to refuse."""
    before, kept, after = map(up, (SURE, {**SURE, "dataOnDestroy": "keep"}, NFS))
    assert said(before, before) == said(before, kept) == said(kept, after) == ""
    of_class = up(SURE_OF_CLASS)
    assert said(of_class, of_class) == ""


def test_preview_refuses_the_purge_too(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is registered."""
    before = up(SURE)
    asked: list[StorageNeeds] = []

    def answer(_: Access, needs: StorageNeeds, *__: object) -> Findings:
        asked.append(needs)
        return storage_findings(api_with(before), needs)

    monkeypatch.setattr(stacks, "ANSWER", answer)
    with pytest.raises(Exception, match="was told dataOnDestroy: purge"):
        deploy("sandbox", tmp_path, NFS)
    deploy("sandbox", tmp_path, SURE)
    assert len(asked) == 2


def test_namespace_that_changes_deletes_no_data(up: Up) -> None:
    """The claim of a class goes with it; a folder stays."""
    there = {"namespace": "another", "dataOnDestroy": "keep"}
    for changes, refused in ((SURE_OF_CLASS, True), (SURE, False)):
        assert (TWO_STEPS in said(up(changes), up({**changes, **there}))) is refused


def test_folder_of_own_machines_is_no_reason(tmp_path: Path) -> None:
    """There the folder's command stays, and purges nothing when the storage changes."""
    before, after = (deploy("dev", tmp_path, changes) for changes in (SURE, NFS))
    assert said(before, after) == ""


def test_another_folder_is_no_reason(up: Up) -> None:
    """The folder's command goes on with the new one, and the old one stays as it is."""
    elsewhere = {**SURE, "dataRoot": "/srv/more", "purgeConfirmed": "/srv/more"}
    assert said(up(SURE), up(elsewhere)) == ""


@CHANGES_TO_NFS
def test_another_nfs_is_another_claim_and_volume(
    up: Up, changes: dict[str, object], then: dict[str, object]
) -> None:
    """None can be changed in place; the run's pods start anew, because they mount the new one."""
    before, after = up(changes), up(then)
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        old, new = (
            {each.inputs["metadata"]["name"] for each in made.of_type(f"kubernetes:core/v1:{kind}")}
            for made in (before, after)
        )
        assert not old & new
        assert new
    assert before.outputs["claim"] != after.outputs["claim"]
    assert revision_of(before) != revision_of(after)
    assert said(before, after) == said(after, after) == ""


def revision_of(made: Deployment) -> str:
    """Of the training's pods."""
    (job,) = (
        each.inputs
        for each in made.of_type("kubernetes:batch/v1:Job")
        if each.inputs["metadata"]["name"] == made.outputs["workload"]
    )
    return job["spec"]["template"]["metadata"]["labels"][REVISION_LABEL]


@CHANGES_TO_NFS
def test_nfs_waits_for_runs_of_others_on_the_old_volume(
    up: Up, changes: dict[str, object], then: dict[str, object]
) -> None:
    """Their pods mount it. Our own run is no reason."""
    before, after = up(changes), up(then)
    guest = replace(RECORD, owner="guest", stack="organization/disttrain/guests")
    ours = replace(RECORD, owner=str(before.outputs["owner"]))
    message = said(before, after, guest.to_object("disttrain"), ours.to_object("disttrain"))
    claim = before.outputs["claim"]
    assert f"storage: the settings lead to another claim than {claim} of namespace" in message
    assert "pulumi destroy --stack organization/disttrain/guests" in message
    assert message.count("pulumi destroy") == 1
    assert said(before, after, ours.to_object("disttrain")) == ""
    assert said(before, before, guest.to_object("disttrain")) == ""


def test_user_who_may_not_list_claims_goes_on(up: Up) -> None:
    """Nobody knows then whether there is an old one."""
    (name,) = (each.name for each in up(NFS).resources if each.name in TASKS)
    job = parse_job(up(NFS).one(name).inputs["stdin"])
    cluster = Cluster([each.inputs for each in up(SURE_OF_CLASS).resources])
    cluster.shows_claims = False
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(cluster)
    TASKS[name].create(job, api)
