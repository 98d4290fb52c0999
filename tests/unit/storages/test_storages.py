"""The kinds of storage: what each makes from the settings, and what the program registers."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.names import CLAIM_OF_CLASS, DATA_ROOT, DATA_SIZE
from infra.registry import NoOptions
from infra.storages import STORAGES
from infra.storages.host_path import HostPathOptions
from infra.storages.kind import Storage, StorageRequest
from infra.storages.nfs import NfsOptions
from infra.storages.storage_class import StorageClassOptions
from tests.unit.stacks import PROJECT_FILE, Deployment, deploy
from tests.unit.storages.other_storages import CLASS, EXISTING, NFS


def made(kind: str, options: Any, size: str = "5Gi") -> Storage:
    return STORAGES[kind].make(StorageRequest("disttrain", "/data", size, options))


def claims_of(result: Deployment) -> set[str]:
    """Return the claims that the pods and the outputs of a stack name."""
    found: set[str] = set()
    for resource in result.resources:
        template = resource.inputs.get("spec", {}).get("template")
        for volume in template["spec"]["volumes"] if template else ():
            if claim := volume.get("persistentVolumeClaim"):
                found.add(claim["claimName"])
    return found | {str(result.outputs["claim"])}


def test_nfs_volume_waits_for_the_claim_of_the_stack() -> None:
    """The NFS volume is reserved for the claim of the stack and kept with its data. Many nodes may
    write to it, and writes are never given up (`hard`).
    """
    storage = made("nfs", NfsOptions("nfs.example.com", "/exports/train"))
    (_, volume), (_, claim) = storage.objects
    assert volume["spec"]["nfs"] == {"server": "nfs.example.com", "path": "/exports/train"}
    assert volume["spec"]["mountOptions"] == ["nfsvers=4.1", "hard"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["accessModes"] == claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["selector"]["matchLabels"] == volume["metadata"]["labels"]
    assert "volumeName" not in claim["spec"]  # It makes every second claim wait 15 s.
    assert volume["metadata"]["name"] == storage.volume
    assert claim["spec"]["storageClassName"] == volume["spec"]["storageClassName"] == ""


def test_claim_of_the_defaults_has_the_plain_name() -> None:
    """The claim of the default folder and size has the name `disttrain-pvc`."""
    defaults = PROJECT_FILE["config"]
    given = [defaults[key]["default"] for key in ("dataRoot", "dataSize")]
    assert given == [DATA_ROOT, DATA_SIZE]
    request = StorageRequest("disttrain", DATA_ROOT, DATA_SIZE, HostPathOptions())
    assert STORAGES["host-path"].make(request).claim == "disttrain-pvc"


def test_another_volume_has_a_claim_of_another_name() -> None:
    """Another storage, folder or size has a claim of another name. A claim cannot be bound to
    another volume, so a preview of the change would fail otherwise.
    """
    nfs = NfsOptions("nfs.example.com", "/exports/train")
    storages = [
        STORAGES["host-path"].make(
            StorageRequest("disttrain", DATA_ROOT, DATA_SIZE, HostPathOptions())
        ),
        made("host-path", HostPathOptions()),
        made("host-path", HostPathOptions(shared=True)),
        made("host-path", HostPathOptions(), size="6Gi"),
        made("nfs", nfs),
        made("nfs", nfs, size="6Gi"),
        made("nfs", NfsOptions("nfs.example.com", "/exports/other")),
        made("storage-class", StorageClassOptions("efs")),
    ]
    assert len({storage.claim for storage in storages}) == len(storages)
    for storage in storages:
        objects = dict(storage.objects)
        assert objects["claim"]["metadata"]["name"] == storage.claim
        if volume := objects.get("volume"):
            assert volume["spec"]["claimRef"]["name"] == storage.claim


@pytest.mark.parametrize(
    ("settings", "awaited"),
    [
        ({}, {"pulumi.com/waitFor": "jsonpath={.status.phase}=Bound"}),
        (NFS, {"pulumi.com/waitFor": "jsonpath={.status.phase}=Bound"}),
        (CLASS, {"pulumi.com/skipAwait": "true"}),
    ],
)
def test_pods_come_after_a_claim_that_needs_none_is_bound(
    tmp_path: Path, settings: dict[str, Any], awaited: dict[str, str]
) -> None:
    """The engine waits until a claim is bound, because a pod that comes before could wait 5
    minutes. For the claim of a class it does not wait, because the class may bind it only when a
    pod uses it.
    """
    claim = deploy("sandbox", tmp_path, settings).one("data-claim").inputs
    assert awaited.items() <= claim["metadata"]["annotations"].items()


def test_other_place_of_the_data_is_another_volume() -> None:
    """Another server, path, mount option, size or kind of storage is another volume."""
    first = made("nfs", NfsOptions("a", "/x"))
    others = [
        made("nfs", NfsOptions("b", "/x")),
        made("nfs", NfsOptions("a", "/y")),
        made("nfs", NfsOptions("a", "/x", "nfsvers=4.2,hard")),
        made("nfs", NfsOptions("a", "/x"), "6Gi"),
        made("host-path", NoOptions()),
        made("host-path", HostPathOptions(shared=True)),
    ]
    assert len({storage.identity for storage in (first, *others)}) == 7
    assert len({storage.volume for storage in (first, *others)}) == 7


def test_folder_that_all_nodes_share_is_for_many_nodes() -> None:
    """A folder that all nodes share can be mounted by many nodes, any other folder by one."""
    for shared, mode in ((False, "ReadWriteOnce"), (True, "ReadWriteMany")):
        storage = made("host-path", HostPathOptions(shared))
        assert storage.access_mode == mode
        modes = {name: each["spec"]["accessModes"] for name, each in storage.objects}
        assert modes == {"volume": [mode], "claim": [mode]}


def test_claim_of_a_class_stays_when_the_stack_goes(tmp_path: Path) -> None:
    """The claim of a class and its namespace stay after `pulumi destroy`, because the class may
    delete the data with the claim. With `dataOnDestroy: purge` both go.
    """
    result = deploy("sandbox", tmp_path, CLASS)
    for name in ("data-claim", "namespace-namespace"):
        assert result.one(name).request.retainOnDelete, name
    claim = result.one("data-claim").inputs
    assert claim["spec"]["storageClassName"] == "efs"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert not result.of_type("kubernetes:core/v1:PersistentVolume")
    assert result.one("data-keep")
    purged = {**CLASS, "dataOnDestroy": "purge", "purgeConfirmed": f"disttrain/{CLAIM_OF_CLASS}"}
    result = deploy("sandbox", tmp_path, purged)
    for name in ("data-claim", "namespace-namespace"):
        assert not result.one(name).request.retainOnDelete, name


def test_only_the_claim_takes_what_others_own(tmp_path: Path) -> None:
    """Only the claim has the annotation `pulumi.com/patchForce`. On a workload, Pulumi would take
    fields from the workload's controllers.
    """
    result = deploy("sandbox", tmp_path, CLASS)
    taking = [
        resource.name
        for resource in result.resources
        if "pulumi.com/patchForce" in resource.inputs.get("metadata", {}).get("annotations", {})
    ]
    assert taking == ["data-claim"]
    plain = deploy("sandbox", tmp_path).one("training-job").inputs["metadata"]["annotations"]
    assert plain == {"pulumi.com/skipAwait": "true"}


def test_pods_can_write_to_a_volume_that_a_class_has_made(tmp_path: Path) -> None:
    """With storage `storage-class`, the pods have a group (`fsGroup`) that may write to the volume.
    A new file system belongs to root, and the kubelet gives it to this group. With other storages
    the pods have no such group.
    """
    templates = [
        resource.inputs["spec"]["template"]["spec"]["securityContext"]
        for resource in deploy("sandbox", tmp_path, CLASS).of_type("kubernetes:batch/v1:Job")
    ]
    assert [context["fsGroup"] for context in templates] == [1000, 1000]
    assert {context["fsGroupChangePolicy"] for context in templates} == {"OnRootMismatch"}
    for unchanged in ({}, NFS, EXISTING):
        jobs = deploy("sandbox", tmp_path, unchanged).of_type("kubernetes:batch/v1:Job")
        assert len(jobs) == 2
        for job in jobs:
            assert "fsGroup" not in job.inputs["spec"]["template"]["spec"]["securityContext"]


def test_existing_claim_and_namespace_are_mounted_and_never_registered(tmp_path: Path) -> None:
    """An existing claim is mounted, but neither the claim nor its namespace is registered. What is
    not registered can be neither changed nor deleted.
    """
    result = deploy("sandbox", tmp_path, EXISTING)
    types = {resource.type for resource in result.resources}
    for kind in ("Namespace", "PersistentVolume", "PersistentVolumeClaim"):
        assert f"kubernetes:core/v1:{kind}" not in types
    assert not any("ClusterRole" in type_ for type_ in types)
    assert claims_of(result) == {"lustre"}
    assert '"claim":"lustre"' in result.one("dataset-upload").program.replace('": "', '":"')


@pytest.mark.parametrize("changes", [NFS, CLASS, EXISTING], ids=["nfs", "class", "existing"])
def test_no_folder_of_a_host_is_made_for_data_elsewhere(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    """Storages without a folder on the host make none and show none in the outputs."""
    result = deploy("sandbox", tmp_path, changes)
    assert "data-root-folder" not in {resource.name for resource in result.resources}
    assert result.outputs["hostDataPath"] == result.outputs["hostRunPath"] == ""


@pytest.mark.parametrize(
    ("stack", "changes", "words"),
    [
        ("sandbox", {**NFS, "dataOnDestroy": "purge"}, "storage: nfs leads to data that does not"),
        ("sandbox", {**EXISTING, "dataOnDestroy": "purge"}, "dataOnDestroy: 'purge' cannot be"),
        (
            "sandbox",
            {**CLASS, "dataOnDestroy": "purge", "purgeConfirmed": "yes"},
            "purgeConfirmed: 'yes' cannot be used: dataOnDestroy: purge would delete every data "
            f"set, checkpoint and log unconfirmed. Set disttrain/{CLAIM_OF_CLASS}",
        ),
        ("sandbox", {**EXISTING, "namespaceExisting": "refuse"}, "Set namespaceExisting: use"),
        ("dev", CLASS, "storage: 'storage-class' cannot be used: the access to the data is in the"),
        ("dev", EXISTING, "storage: 'existing-claim' cannot be used: the access to the data is in"),
        ("sandbox", {**NFS, "storageOptions": {"server": "a"}}, "storageOptions.path"),
    ],
)
def test_storage_that_cannot_keep_its_promise_is_refused(
    tmp_path: Path, stack: str, changes: dict[str, object], words: str
) -> None:
    """Settings with which the storage could not work, or would delete data unconfirmed, are
    refused.
    """
    with pytest.raises(pulumi.RunError) as refused:
        deploy(stack, tmp_path, changes)
    assert words in str(refused.value)
