"""The parts of the sandbox's cluster of several nodes that can be tested without a cluster."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.__main__ import main
from sandbox.api import missing_node_condition
from sandbox.image_links import BLOBS, Store, chain_ids
from sandbox.image_mirror import DEFAULT_TYPE, Mirror, find
from sandbox.layout import MOST_NODES, SOCKET_PATH_LIMIT, STATE_ROOT, Layout
from sandbox.network import POD_CIDR, pods_of
from sandbox.peer_links import at_first

NUMBERS = range(1, MOST_NODES + 1)
IMAGE = "localhost/disttrain/probe:test"


@given(name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", fullmatch=True))
def test_nodes_of_a_cluster_share_its_data_and_nothing_else(name: str) -> None:
    """The nodes of a cluster share its data folder and nothing else."""
    layouts = [Layout(name).node(number) for number in NUMBERS]
    assert layouts[0] == Layout(name)
    assert {layout.data for layout in layouts} == {STATE_ROOT / name / "data"}
    for part in ("root", "run", "log", "containerd_store", "host_link", "cgroup", "node_name"):
        assert len({getattr(layout, part) for layout in layouts}) == MOST_NODES, part
    assert all(len(layout.node_name) <= 63 for layout in layouts)  # a DNS label
    assert all(len(f"{each.containerd_socket}.ttrpc") <= SOCKET_PATH_LIMIT for each in layouts)


def test_pods_of_different_nodes_have_different_addresses() -> None:
    ranges = [pods_of(number) for number in NUMBERS]
    assert str(ranges[0]) == "10.244.0.0/24"  # as in a cluster of one node
    assert all(each.subnet_of(POD_CIDR) for each in ranges)
    assert len(set(ranges)) == len(ranges)
    assert all(each.prefixlen == 24 for each in ranges)


def test_links_between_nodes_are_not_called_as_the_link_to_the_host() -> None:
    assert len({"node0", *(at_first(number) for number in NUMBERS)}) == MOST_NODES + 1


def test_further_nodes_are_known_by_their_folders(tmp_path: Path) -> None:
    """The further nodes of a cluster are found by their folders."""
    layout = Layout("some", tmp_path)
    for folder in ("node3", "node2", "nodes", "node1", "node10", "node3x"):
        (layout.root / folder).mkdir(parents=True)
    assert layout.further_nodes() == [layout.node(2), layout.node(3)]


def test_layers_have_the_names_that_the_specification_gives_them() -> None:
    first, second = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    assert chain_ids([]) == []
    joined = hashlib.sha256(f"{first} {second}".encode()).hexdigest()
    assert chain_ids([first, second]) == [first, f"sha256:{joined}"]


@pytest.mark.parametrize("name", ["../../meta.db", "sha256:../x", "sha256:" + "a" * 63, ""])
def test_only_a_digest_leads_to_a_file_of_the_store(name: str, tmp_path: Path) -> None:
    """A name that is no digest leads to no file of the image store."""
    assert Store(tmp_path / "socket", tmp_path).blob(name).name == "no-digest"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Return a mirror over a folder with one image. What `ctr` would answer is set here."""
    made = Mirror(Layout("some", tmp_path))
    (made.images.root / BLOBS).mkdir(parents=True)
    digest = put(made.images, json.dumps({"layers": []}).encode())
    monkeypatch.setattr(Store, "images", lambda _: {IMAGE: digest})
    return made


def put(store: Store, blob: bytes) -> str:
    """Write a blob into the store and return its digest."""
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    store.blob(digest).write_bytes(blob)
    return digest


def test_the_mirror_finds_an_image_under_the_registry_of_its_name(mirror: Mirror) -> None:
    digest = mirror.images.images()[IMAGE]
    found = find(mirror, "/v2/disttrain/probe/manifests/test?ns=localhost", "198.18.0.6")
    assert found
    assert (found.digest, found.kind) == (digest, DEFAULT_TYPE)
    again = find(mirror, f"/v2/disttrain/probe/manifests/{digest}?ns=localhost", "198.18.0.6")
    assert again == found


def test_the_mirror_gives_blobs_by_their_digest(mirror: Mirror) -> None:
    layer = gzip.compress(b"layer")  # once, as gzip notes the time
    digest = put(mirror.images, layer)
    found = find(mirror, f"/v2/disttrain/probe/blobs/{digest}?ns=localhost", "198.18.0.6")
    assert found
    assert found.path.read_bytes() == layer


@pytest.mark.parametrize(
    "target",
    [
        "/v2/",
        "/v2/disttrain/probe/manifests/other?ns=localhost",
        "/v2/disttrain/probe/manifests/test?ns=docker.io",
        f"/v2/disttrain/probe/manifests/sha256:{'0' * 64}?ns=localhost",
        f"/v2/disttrain/probe/blobs/sha256:{'0' * 64}",
        "/v2/disttrain/probe/blobs/..%2F..%2Fmeta.db",
        "/v1/disttrain/probe/manifests/test",
        "/",
    ],
)
def test_the_mirror_has_nothing_else(mirror: Mirror, target: str) -> None:
    assert find(mirror, target, "198.18.0.6") is None


def test_what_a_lost_kubelet_has_said_does_not_make_its_node_ready() -> None:
    """A node is ready only if its kubelet has said so since the start. What a lost kubelet said
    before does not count.
    """

    def node(heartbeat: str) -> str:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
        return json.dumps({"status": {"conditions": [ready]}, "spec": {}})

    started = 1_700_000_000.7  # 2023-11-14T22:13:20.7Z
    assert missing_node_condition(node("2023-11-14T22:13:19Z"), started)
    assert missing_node_condition(node("2023-11-14T22:13:20Z"), started) is None
    assert missing_node_condition(node("2023-11-14T22:13:19Z")) is None


def test_a_node_that_is_not_there_is_named_with_those_that_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A command for a node that does not exist names the nodes that do."""
    where = ["--name", "x", "--state-root", str(tmp_path)]
    assert main(["logs", *where, "--node", "2", "kubelet"]) == 1
    assert "cluster x has no node 2; there are: 1" in capsys.readouterr().err
    assert main(["link", *where, "--node", "1", "--cut"]) == 1
    assert "the links lead to node 1: name another node" in capsys.readouterr().err
