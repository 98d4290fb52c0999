"""A storage that cannot work is refused before anything is made, on a real API server."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from infra.kube.paths import CLAIMS, CLASSES, VOLUMES
from infra.kube.volumes.storage_findings import DRIVERS, StorageNeeds, storage_findings
from infra.names import CLAIM
from infra.storages.kind import Storage, StorageRequest, claim_manifest
from infra.storages.nfs import NfsOptions, nfs
from tests.kube.accounts import viewer_of
from tests.kube.cluster_objects import made, phase_of, unique, volume
from tests.kube.lab import Json, Lab, wait_for

MANY, ONE = "ReadWriteMany", "ReadWriteOnce"
Claiming = Callable[..., StorageNeeds]


def storage_class(provisioner: str, mode: str = "Immediate") -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": unique("class")},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def node(name: str) -> Json:
    """Return the manifest of a node that is only an object, without a kubelet."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def wants_class(lab: Lab, class_name: str, mode: str = MANY) -> StorageNeeds:
    """Return the needs of a stack that makes its claim from a storage class."""
    return StorageNeeds(lab.namespace(), CLAIM, False, class_name, mode, "1Mi", 0)


@pytest.fixture
def has_claim(lab: Lab) -> Iterator[Claiming]:
    """Yield a function that makes a claim. The claims are deleted afterwards.

    A claim that stayed unbound would be bound to the volume of a later test.
    """
    paths: list[str] = []

    def make(mode: str, class_name: str = "", bound_to: str = "") -> StorageNeeds:
        """Make a claim, bound to a volume if one is named, and return the needs of a stack that
        uses it.
        """
        namespace = lab.namespace()
        claim = claim_manifest(namespace, mode, "1Mi", class_name=class_name, volume=bound_to)
        collection = CLAIMS.format(namespace)
        lab.api.create(collection, claim)
        path = f"{collection}/{CLAIM}"
        paths.append(path)
        wanted = "Bound" if bound_to else "Pending"
        wait_for(f"the claim to be {wanted}", lambda: phase_of(lab, path) == wanted)
        return StorageNeeds(namespace, CLAIM, True, "", "", "", 0)

    yield make
    for path in paths:
        lab.api.delete(path, {})
        wait_for("the end of the claim", lambda path=path: lab.api.get(path) is None)


def problem(lab: Lab, needs: StorageNeeds) -> str:
    """Return the only problem that is found."""
    (found,) = storage_findings(lab.api, needs).problems
    return found


def test_class_that_does_not_exist_is_refused_with_those_that_do(lab: Lab) -> None:
    with made(lab, CLASSES, storage_class("example.com/disks")) as there:
        said = problem(lab, wants_class(lab, "fast-ssd"))
        assert "storageOptions.className: 'fast-ssd' cannot be used" in said
        assert there["metadata"]["name"] in said
        needs = wants_class(lab, there["metadata"]["name"])
        assert storage_findings(lab.api, needs).problems == []


def test_class_whose_driver_is_missing_is_refused_until_it_is_there(lab: Lab) -> None:
    name = unique("efs.csi.example.com")
    with made(lab, CLASSES, storage_class(name)) as there:
        needs = wants_class(lab, there["metadata"]["name"])
        assert f"its CSI driver {name} is not installed" in problem(lab, needs)
        driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "spec": {}}
        with made(lab, DRIVERS, {**driver, "metadata": {"name": name}}):
            assert storage_findings(lab.api, needs).problems == []


def test_class_without_provisioner_needs_a_free_volume(lab: Lab) -> None:
    with made(lab, CLASSES, storage_class("kubernetes.io/no-provisioner")) as there:
        needs = wants_class(lab, there["metadata"]["name"])
        assert "nothing makes volumes for this class" in problem(lab, needs)
        with made(lab, VOLUMES, volume(needs.class_name, ONE)):
            assert f"is free, has {MANY}" in problem(lab, needs)
            assert storage_findings(lab.api, replace(needs, access_mode=ONE)).problems == []


def test_class_that_waits_for_a_pod_is_explained(lab: Lab, has_claim: Claiming) -> None:
    """A note says that a claim of a `WaitForFirstConsumer` class stays Pending until the first pod.

    Otherwise such a claim looks like a fault.
    """
    with made(lab, CLASSES, storage_class("example.com/disks", "WaitForFirstConsumer")) as there:
        name = there["metadata"]["name"]
        found = storage_findings(lab.api, wants_class(lab, name))
        assert found.problems == []
        assert f"storage class {name} binds the claim {CLAIM} when the first pod" in found.notes[0]
        found = storage_findings(lab.api, has_claim(MANY, name))
        assert found.problems == []
        assert "nothing is wrong with it" in found.notes[0]


@pytest.mark.slow
def test_claim_with_data_can_grow_and_not_change_otherwise(lab: Lab, has_claim: Claiming) -> None:
    """`up` refuses each change of a claim with data but a larger size, and names the setting.

    Kubernetes itself would refuse the change with a long difference of two objects.
    """
    with made(lab, CLASSES, storage_class("example.com/disks")) as there:
        name = there["metadata"]["name"]
        with made(lab, VOLUMES, volume(name, MANY)) as item:
            claim = has_claim(MANY, name, bound_to=item["metadata"]["name"])
            same = StorageNeeds(claim.namespace, CLAIM, False, name, MANY, "1Mi", 0)
            for fits in (same, replace(same, size="2Gi")):
                assert storage_findings(lab.api, fits).problems == []
            said = problem(lab, replace(same, size="1000Ki"))
            assert "dataSize: '1000Ki' cannot be used" in said
            assert "Set at least 1Mi" in said
            said = problem(lab, replace(same, access_mode=ONE))
            assert f"storageOptions.accessMode: '{ONE}' cannot be used" in said
            with made(lab, CLASSES, storage_class("example.com/disks")) as other:
                said = problem(lab, replace(same, class_name=other["metadata"]["name"]))
                assert f"which holds data and has {name}" in said


def test_claim_that_is_not_there_or_not_bound_is_refused(lab: Lab, has_claim: Claiming) -> None:
    needs = has_claim(MANY)
    assert "it is Pending and not Bound" in problem(lab, needs)
    said = problem(lab, replace(needs, claim="lustre"))
    assert f"namespace {needs.namespace} has no such claim; there is {CLAIM}" in said


def test_claim_that_is_being_deleted_is_refused(lab: Lab, has_claim: Claiming) -> None:
    needs = has_claim(MANY)
    path = f"{CLAIMS.format(needs.namespace)}/{CLAIM}"
    lab.api.patch(path, {"metadata": {"finalizers": ["example.com/kept-by-the-test"]}})
    lab.api.delete(path, {})
    assert "it is being deleted" in problem(lab, needs)
    lab.api.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.slow
def test_claim_that_can_only_be_read_is_refused(lab: Lab, has_claim: Claiming) -> None:
    with made(lab, VOLUMES, volume("", "ReadOnlyMany")) as there:
        needs = has_claim("ReadOnlyMany", bound_to=there["metadata"]["name"])
        assert "its access mode is ReadOnlyMany" in problem(lab, needs)


@pytest.mark.slow
def test_claim_whose_driver_is_missing_is_refused(lab: Lab, has_claim: Claiming) -> None:
    csi = {"driver": unique("fsx.csi.example.com"), "volumeHandle": "one"}
    with made(lab, VOLUMES, volume("", MANY, csi=csi)) as there:
        needs = has_claim(MANY, bound_to=there["metadata"]["name"])
        assert f"its CSI driver {csi['driver']} is not installed" in problem(lab, needs)


def test_volume_for_one_node_is_refused_for_pods_on_several(lab: Lab) -> None:
    """A volume that one node can mount is refused for several pods if the cluster has several
    nodes.

    On a single node several pods can share the volume; with two nodes the cluster may spread them.
    """
    with made(lab, CLASSES, storage_class("example.com/disks")) as there:
        name = there["metadata"]["name"]
        one_node = replace(wants_class(lab, name, ONE), pods=2)
        assert storage_findings(lab.api, one_node).problems == []
        assert "only one pod can mount" in problem(
            lab, replace(one_node, access_mode="ReadWriteOncePod")
        )
        with made(lab, "/api/v1/nodes", node(unique("second"))):
            said = problem(lab, one_node)
            assert "pods: 2 cannot be used" in said
            assert "the cluster has 2 nodes for these pods" in said
            for fits in (replace(one_node, pods=1), replace(one_node, access_mode=MANY)):
                assert storage_findings(lab.api, fits).problems == []


def test_nfs_volume_and_claim_are_bound_by_the_api_server(lab: Lab) -> None:
    """The cluster accepts the NFS volume and its claim, and binds them to each other.

    No NFS server is needed for that; one is asked only when a pod mounts the volume.
    """
    namespace = lab.namespace()
    options = NfsOptions("nfs.example.com", "/exports/train")
    storage: Storage = nfs(StorageRequest(namespace, "/data", "1Mi", options))
    (_, item), (_, claim) = storage.objects
    with made(lab, VOLUMES, item):
        lab.api.create(CLAIMS.format(namespace), claim)
        path = f"{CLAIMS.format(namespace)}/{storage.claim}"
        wait_for("the claim to be bound", lambda: phase_of(lab, path) == "Bound")
        found = lab.api.get(path)
        assert found
        assert found["spec"]["volumeName"] == storage.volume


@pytest.mark.parametrize("kind", ["class", "claim"])
def test_what_the_user_may_not_see_is_said_and_not_refused(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    needs = wants_class(lab, "unseen")
    folder = tmp_path_factory.mktemp("viewer")
    somebody = viewer_of(lab, needs.namespace, folder, "system:basic-user", "rolebinding")
    found = storage_findings(somebody, replace(needs, is_there=kind == "claim"))
    assert found.problems == []
    assert "these credentials may not look there" in found.notes[0]
