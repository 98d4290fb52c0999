"""A change to another storage deletes no data, although `destroy` was told to purge them before.

The engine deletes former resources by their former settings. So the tests put what the first
program registers on a stand-in for the cluster, and run the tasks of the second program there.
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
from infra.kube.job import Job, parse_job
from infra.kube.names import REVISION_LABEL
from infra.kube.volumes import free_volume, keep_claim, use_claim
from infra.kube.volumes.storage_findings import StorageNeeds, storage_findings
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
    """A cluster with the claims that a stack has registered, the class `efs`, and the claim
    `lustre`.

    Args:
        claims: the claims of the stack.
        runs: the records of the runs in the namespace.
    """

    def __init__(self, claims: list[dict[str, Any]], runs: Sequence[dict[str, Any]] = ()) -> None:
        self._claims, self._runs = claims, runs
        self.shows_claims = True  # whether this user may list them

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        del body
        assert method == "GET"
        if path.endswith("/storageclasses/efs"):
            return {"provisioner": "example.com/disks"}
        if path.endswith("/persistentvolumeclaims/lustre"):
            spec = {"accessModes": ["ReadWriteMany"]}
            return {"spec": spec, "status": {"phase": "Bound"}}
        if "/persistentvolumeclaims/" in path:
            named = [each for each in self._claims if path.endswith(f"/{each['metadata']['name']}")]
            return next(iter(named), None)
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
    """Return the API of a cluster after the `up` of this program, with the records `runs`."""
    found = [item.inputs for item in result.of_type("kubernetes:core/v1:PersistentVolumeClaim")]
    return api_of(Cluster(found, runs))


def made_at(result: Deployment, minute: int) -> list[dict[str, Any]]:
    """Return the claims of this program, as the cluster shows them if they were made then."""
    claims = [item.inputs for item in result.of_type("kubernetes:core/v1:PersistentVolumeClaim")]
    when = {"creationTimestamp": f"2026-11-28T10:{minute:02}:00Z"}
    return [{**each, "metadata": {**each["metadata"], **when}} for each in claims]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Up:
    """Return a function that returns what the stack `sandbox` registers with these settings. Each
    result is computed once.
    """
    scratch, known = tmp_path_factory.mktemp("stacks"), dict[str, Deployment]()

    def deployed(changes: Mapping[str, object]) -> Deployment:
        key = json.dumps(changes, sort_keys=True)
        if key not in known:
            known[key] = deploy("sandbox", scratch, changes)
        return known[key]

    return deployed


def said(before: Deployment, after: Deployment, *runs: dict[str, Any]) -> str:
    """Return the error of the next `up` where its storage begins; empty: `up` goes on.

    Args:
        before: what the last `up` has made.
        after: what the next `up` makes.
        runs: the records of the runs in the namespace.
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
    """`up` refuses another storage if the last `up` had `dataOnDestroy: purge`, and names the two
    steps that keep the data. Otherwise the data would be deleted, although the settings now say
    `keep`.
    """
    message = said(up(changes), up(then))
    assert "the last `pulumi up` was told dataOnDestroy: purge" in message
    assert TWO_STEPS in message
    assert message.count("\n") == 0


def test_change_in_two_steps_is_made(up: Up) -> None:
    """Another storage is accepted after an `up` with `dataOnDestroy: keep`. Without a change of the
    storage nothing is refused.
    """
    before, kept, after = map(up, (SURE, {**SURE, "dataOnDestroy": "keep"}, NFS))
    assert said(before, before) == said(before, kept) == said(kept, after) == ""
    of_class = up(SURE_OF_CLASS)
    assert said(of_class, of_class) == ""


def test_preview_refuses_the_purge_too(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview refuses a change that would purge data, before anything is registered."""
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
    """`up` refuses another namespace if the claim of a class would be purged with the former one.
    The data in a folder stay, so a folder is no reason to refuse.
    """
    there = {"namespace": "another", "dataOnDestroy": "keep"}
    for changes, refused in ((SURE_OF_CLASS, True), (SURE, False)):
        assert (TWO_STEPS in said(up(changes), up({**changes, **there}))) is refused


def test_folder_of_own_machines_is_no_reason(tmp_path: Path) -> None:
    """On the stack's own machines another storage is accepted. The command of the folder stays
    there, and purges nothing when the storage changes.
    """
    before, after = (deploy("dev", tmp_path, changes) for changes in (SURE, NFS))
    assert said(before, after) == ""


def test_another_folder_is_no_reason(up: Up) -> None:
    """Another folder is accepted, because the command of the folder continues with the new one and
    leaves the old one as it is.
    """
    elsewhere = {**SURE, "dataRoot": "/srv/more", "purgeConfirmed": "/srv/more"}
    assert said(up(SURE), up(elsewhere)) == ""


@CHANGES_TO_NFS
def test_another_nfs_is_another_claim_and_volume(
    up: Up, changes: dict[str, object], then: dict[str, object]
) -> None:
    """A change to, of or from NFS makes another claim, another volume and another revision of the
    pods, because neither claim nor volume can be changed in place.
    """
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
    """Return the revision of the training's pods."""
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
    """`up` refuses another claim while runs of other stacks mount the old one, and names the
    commands that end them. The stack's own run is no reason to refuse.
    """
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
    """`up` goes on for a user who may not list claims, because it is not known whether there is an
    old one.
    """
    (name,) = (each.name for each in up(NFS).resources if each.name in TASKS)
    job = parse_job(up(NFS).one(name).inputs["stdin"])
    cluster = Cluster([each.inputs for each in up(SURE_OF_CLASS).resources])
    cluster.shows_claims = False
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(cluster)
    TASKS[name].create(job, api)


def test_unfinished_change_is_not_taken_back(up: Up) -> None:
    """`up` refuses to go back to the former claim while that of an unfinished change is there, too.
    The engine would delete the claim, which its state has for deletion, or is already deleting it.
    To go on with the change is accepted, and so is the way back once only one claim is left.
    """
    shared = {"storageOptions": {"shared": True}}
    for way_back, forth in (({}, shared), (NFS, OTHER_PATH), ({}, CLASS)):
        (former,), newer = made_at(up(way_back), 1), made_at(up(forth), 2)
        going = {"metadata": {**former["metadata"], "deletionTimestamp": "2026-11-28T10:03:00Z"}}
        for each in (former, {**former, **going}):
            with pytest.raises(TaskError, match=r"was not finished\. Pulumi would still delete"):
                free_volume.create(job_of(up(way_back)), api_of(Cluster([each, *newer])))
        if forth is not CLASS:
            free_volume.create(job_of(up(forth)), api_of(Cluster([former, *newer])))
        for rest in (newer, [former]):
            free_volume.create(job_of(up(way_back)), api_of(Cluster(rest)))


def job_of(result: Deployment) -> Job:
    """Return the job of the task with which the storage of this program begins."""
    return parse_job(result.one("data-look").inputs["stdin"])
