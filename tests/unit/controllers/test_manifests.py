"""A controller that is installed by manifests: where the files come from, what is refused, and what
is registered.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pulumi
import pytest

from infra.controllers import CONTROLLERS
from infra.controllers.kind import PinnedManifests
from infra.controllers.manifests import objects_of
from infra.kube.controllers.apply_definitions import packed, unpacked
from infra.kube.controllers.claim_controller import refusal_of_parts, refusal_without
from infra.platform.controller_files import download_access, read_objects
from infra.platform.controllers import controller_for_tasks, parts_of
from infra.settings.controllers import ControllerSettings
from tests.unit.airgap.stocked import stock
from tests.unit.certificates import AUTHORITY
from tests.unit.controllers.published import NAME, OPERATOR, PARTS, Publisher, publishing, sha256
from tests.unit.settings.reading import PROXY, platform
from tests.unit.settings.reading import refusal as refused_settings
from tests.unit.stacks import deploy

DIRECT = download_access(platform().proxy, {"no_proxy": "127.0.0.1"})
BY_MANIFESTS = [name for name, kind in CONTROLLERS.items() if kind.files]


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    """Yield a publisher of the MPI Operator's files."""
    with publishing(monkeypatch, tmp_path / "cache") as made:
        yield made


def refusal(publisher: Publisher, folder: str = "") -> str:
    """Return the error with which the files cannot be had."""
    with pytest.raises(pulumi.RunError) as refused:
        read_objects(publisher.kind, ControllerSettings(NAME, manifests=folder), DIRECT)
    return str(refused.value)


@pytest.mark.parametrize("name", BY_MANIFESTS)
def test_every_file_is_of_the_version_and_has_a_checksum(name: str) -> None:
    """Each published file is that of the controller's version, and has a checksum and a name of its
    own.
    """
    kind = CONTROLLERS[name]
    assert isinstance(kind.source, PinnedManifests)
    for file in kind.source.files:
        assert file.address.startswith("https://raw.githubusercontent.com/")
        assert f"/v{kind.version}/" in file.address
        assert len(file.sha256) == len(bytes.fromhex(file.sha256)) * 2 == 64
    assert len(set(kind.files)) == len(kind.files), "a folder holds one file of each name"


def test_objects_are_registered_between_the_tasks_in_order(
    publisher: Publisher, tmp_path: Path
) -> None:
    """The controller is claimed first; definitions come before programs, and webhooks last; at the
    end it has to answer. Every object depends on the one before, so `destroy` deletes them in the
    reverse order.
    """
    made = deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})
    roles = (
        "claim",
        "namespace",
        "remains",
        "definitions",
        "clusterrole-mpi-operator",
        "deployment-mpi-operator",
        "validatingwebhookconfiguration-checks",
        "open",
    )
    by_role = [made.one(f"controller-{NAME}-{role}") for role in roles]
    for earlier, later in pairwise(by_role):
        assert earlier.urn in later.request.dependencies, (earlier.name, later.name)
    # No object is left out.
    kinds = [item.type for item in made.resources if f"controller-{NAME}-" in item.name]
    assert [kind for kind in kinds if kind.endswith(":Namespace")] == [
        "kubernetes:core/v1:Namespace"
    ]
    assert len([kind for kind in kinds if kind.startswith("kubernetes:")]) == 5
    (definition,) = unpacked(json.loads(by_role[3].inputs["stdin"])["definitions"])
    assert definition["metadata"]["name"] == "mpijobs.kubeflow.org"
    claim = json.loads(by_role[0].inputs["stdin"])["controller"]
    assert ["rbac.authorization.k8s.io/v1", "ClusterRole", "of-others"] in claim["parts"]
    guard = json.loads(made.one("destroy-guard-look").inputs["stdin"])
    assert [each["name"] for each in guard["controllers"]] == [NAME]


def test_every_object_says_whose_it_is_and_waits_for_nothing(
    publisher: Publisher, tmp_path: Path
) -> None:
    """Each object has the labels of this stack beside its own, and the provider does not wait for
    it.
    """
    made = deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})
    owner = json.loads(made.one(f"controller-{NAME}-open").inputs["stdin"])["owner"]
    parts = [
        item
        for item in made.resources
        if item.type.startswith("kubernetes:") and item.name.startswith(f"controller-{NAME}-")
    ]
    for part in parts:
        about = part.inputs["metadata"]
        assert about["labels"]["disttrain.dev/owner"] == owner, part.name
        assert about["labels"]["disttrain.dev/stack"], part.name
        if not part.type.endswith(":Namespace"):
            assert about["annotations"]["pulumi.com/skipAwait"] == "true", part.name
    deployment = made.one(f"controller-{NAME}-deployment-mpi-operator").inputs
    assert deployment["metadata"]["annotations"]["theirs"] == "kept"
    assert made.one(f"controller-{NAME}-clusterrole-mpi-operator").inputs["metadata"]["labels"][
        "theirs"
    ]


def test_objects_have_nothing_that_the_cluster_fills_in(publisher: Publisher) -> None:
    """Fields that the cluster fills in are left out, because each preview would show a difference
    otherwise. The pods tolerate the nodes' taints and use an image that is there.
    """
    made = {item["kind"]: item for item in objects_of(publisher.kind, [OPERATOR, PARTS])}
    assert "status" not in made["CustomResourceDefinition"]
    assert "rules" not in made["ClusterRole"], "of the aggregated role, which is the last one"
    assert "creationTimestamp" not in made["ClusterRole"]["metadata"]
    spec = made["Deployment"]["spec"]["template"]["spec"]
    assert [each["key"] for each in spec["tolerations"]] == [
        "theirs",
        "nvidia.com/gpu",
        "node-role.kubernetes.io/control-plane",
    ]
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert "Namespace" not in made


def test_second_preview_needs_no_network(publisher: Publisher, tmp_path: Path) -> None:
    """The files are downloaded once and kept in the cache, so a second preview needs no network."""
    deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})
    assert sorted(publisher.web.requests) == ["/operator.yaml", "/parts.yaml"]
    assert [path.name for path in publisher.kept()] == sorted([sha256(OPERATOR), sha256(PARTS)])
    publisher.web.files.clear()
    deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})
    assert len(publisher.web.requests) == 2


def test_damaged_file_of_the_cache_is_fetched_again(publisher: Publisher) -> None:
    """A damaged file in the cache is downloaded again."""
    whole = read_objects(publisher.kind, ControllerSettings(NAME), DIRECT)
    (publisher.cache / "manifests" / sha256(PARTS)).write_text("cut off")
    assert read_objects(publisher.kind, ControllerSettings(NAME), DIRECT) == whole
    assert publisher.web.requests == ["/operator.yaml", "/parts.yaml", "/parts.yaml"]


def test_file_of_another_content_is_refused_with_both_sums(publisher: Publisher) -> None:
    """A file with another checksum is refused with both checksums, and is not kept."""
    publisher.web.files["/parts.yaml"] = b"kind: Other"
    said = refusal(publisher)
    assert said.startswith("controllers: 'mpi-operator' cannot be used: a file of Kubeflow's MPI")
    assert f"/parts.yaml: sha256 is {sha256('kind: Other')}, not {sha256(PARTS)}" in said
    assert [path.name for path in publisher.kept()] == [sha256(OPERATOR)]


def test_download_that_fails_says_where_why_and_the_ways_out(publisher: Publisher) -> None:
    publisher.web.files.clear()
    said = refusal(publisher)
    assert f"{publisher.file(0).address}: 404" in said
    assert "httpsProxy and caBundle count for it too" in said
    assert "put operator.yaml and its 1 other files into a folder" in said
    assert "set controllerManifests.mpi-operator to it; or take mpi-operator out of" in said
    assert publisher.kept() == []


def test_nothing_is_registered_where_a_file_cannot_be_had(
    publisher: Publisher, tmp_path: Path
) -> None:
    """`up` is refused if a file cannot be had, and nothing is registered (`deploy` checks it)."""
    publisher.web.files.clear()
    with pytest.raises(pulumi.RunError, match="could not be had"):
        deploy("sandbox", tmp_path, {"controllers": [NAME], "topology": "none"})


def test_folder_of_the_user_takes_the_place_of_the_network(
    publisher: Publisher, tmp_path: Path
) -> None:
    """With `controllerManifests`, the files come from a folder and nothing is downloaded. A missing
    file or one with another checksum is refused with what to do.
    """
    folder = publisher.folder(tmp_path / "files")
    manifests = {"controllers": [NAME], "controllerManifests": {NAME: str(folder)}}
    deploy("sandbox", tmp_path, {**manifests, "topology": "none"})
    assert publisher.web.requests == []
    (folder / "parts.yaml").write_text("kind: Other")
    said = refusal(publisher, str(folder))
    assert said.startswith(f"controllerManifests.mpi-operator: '{folder}' cannot be used")
    assert f"has the sha256 {sha256('kind: Other')}" in said
    assert f"has {sha256(PARTS)}. Download it from {publisher.file(1).address}" in said
    (folder / "parts.yaml").unlink()
    assert "parts.yaml cannot be read there (No such file or directory)" in refusal(
        publisher, str(folder)
    )
    assert "cannot be used: it has no file parts.yaml. Set a folder" in refused_settings(manifests)


def test_download_goes_by_the_proxy_and_authorities_of_the_settings(tmp_path: Path) -> None:
    """The download uses the proxy and the authorities of the settings, as the build of the image
    does. Without them the variables of this machine count.
    """
    authority = tmp_path / "ca.crt"
    authority.write_text(AUTHORITY)
    given = {"HTTPS_PROXY": "http://theirs:1", "NO_PROXY": "all.example", "PATH": "/bin"}
    proxy = {**PROXY, "httpsProxy": "http://proxy.corp.example:3129", "caBundle": str(authority)}
    access = download_access(platform(proxy).proxy, given)
    assert access.environment["https_proxy"] == "http://proxy.corp.example:3129"
    assert "HTTPS_PROXY" not in access.environment
    assert "10.1.2.3" in access.environment["no_proxy"]
    assert "NO_PROXY" not in access.environment
    assert access.authorities == AUTHORITY
    assert download_access(platform().proxy, given).environment == given


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"controllers": [NAME], "controllerCharts": {NAME: "/nowhere"}},
            "controllerCharts.mpi-operator: '/nowhere' cannot be used: mpi-operator is installed "
            "by manifests, not by a chart. Set controllerManifests.mpi-operator to a folder",
        ),
        (
            {"controllers": ["jobset"], "controllerManifests": {"jobset": "/nowhere"}},
            "controllerManifests.jobset: '/nowhere' cannot be used: jobset is installed by a "
            "chart, not by manifests. Set controllerCharts.jobset to its chart",
        ),
        (
            {"controllerManifests": {NAME: "/nowhere"}},
            "mpi-operator is not among controllers. Add mpi-operator to controllers",
        ),
        (
            {"controllers": [NAME], "controllerManifests": {NAME: "/nowhere"}},
            "'/nowhere' cannot be used: it has no file mpi-operator.yaml. Set a folder",
        ),
        (
            {"controllers": ["volcano"], "namespace": "volcano-system"},
            "namespace: 'volcano-system' cannot be used: it is that of the controller volcano",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_way_out(
    changes: dict[str, object], said: str
) -> None:
    """Wrong settings of such a controller are refused with what to do."""
    assert said in refused_settings(changes)


def test_stack_without_internet_needs_the_files(tmp_path: Path) -> None:
    """With a bundle, such a controller is refused unless its files are given."""
    said = refused_settings({"controllers": ["volcano"], "bundle": str(stock(tmp_path))})
    assert "controllers: 'volcano' cannot be used: the folder of the setting bundle has" in said
    assert "neither its manifests nor its image. Set controllerManifests.volcano to its" in said


def test_parts_of_others_and_missing_needs_are_told_with_ways_out() -> None:
    """Objects of others with the names of a controller's, and a missing controller that it needs,
    are refused with what to do.
    """
    said = refusal_of_parts(controller_for_tasks(CONTROLLERS[NAME]), ["ClusterRole mpi-operator"])
    assert "has parts of the names ClusterRole mpi-operator, which are in the cluster" in said
    assert "Take mpi-operator out of controllers" in said
    said = refusal_without(controller_for_tasks(CONTROLLERS["trainer"]))
    assert (
        "Kubeflow Trainer needs jobset, and there is no CustomResourceDefinition jobsets." in said
    )
    assert said.endswith("Add jobset to controllers")


def test_same_definitions_are_the_same_text() -> None:
    """The same definitions are the same input, in whatever order their fields are, and other ones
    are another input. Otherwise each `up` would apply them anew.
    """
    some, other = [{"kind": "A", "b": [1]}], [{"b": [1], "kind": "A"}]
    assert packed(some) == packed(other)
    assert unpacked(packed(some)) == some
    assert packed([{"kind": "A", "b": [2]}]) != packed(some)


def test_definitions_and_what_lies_in_a_namespace_are_no_parts(publisher: Publisher) -> None:
    """Only objects of the whole cluster are looked for before they are made. Definitions are looked
    for anyway, and the controller's namespace is new.
    """
    names = [part[1:] for part in parts_of(objects_of(publisher.kind, [OPERATOR, PARTS]))]
    assert names == [
        ("ClusterRole", "mpi-operator"),
        ("ClusterRole", "of-others"),
        ("ValidatingWebhookConfiguration", "checks"),
    ]
