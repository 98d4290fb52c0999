"""The sandbox's cluster of several nodes is joined, used, cut, killed, mended and ended on this
machine.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.__main__ import main
from sandbox.cluster import Cluster
from sandbox.image_archive import image_archive
from sandbox.image_links import Store, link_image
from sandbox.peer_links import TO_FIRST, at_first
from sandbox.waiting import wait_until
from tests.sandbox.cluster_lab import ClusterUser, Machine, left_behind, machine
from tests.sandbox.conftest import PROBE_IMAGE

SPREAD = Path(__file__).parent / "spread_pods.yaml"
LIMIT_SECONDS = 120


class SeveralNodes(ClusterUser):
    """A cluster of three nodes with a pod on each.

    `has_pods`: the start of the cluster that has the pods, as `uid` tells it.
    """

    has_pods = ""  # the start of the cluster that has them, see `uid`

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the nodes by their names."""
        items = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def ready(self, node: str) -> str:
        """Return the status of the node's condition Ready."""
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        return self.kubectl("get", "node", node, "-o", f"jsonpath={path}")

    def pods(self) -> dict[int, tuple[str, str]]:
        """Return name and address of the pod on each node, by the node's number."""
        items = json.loads(self.kubectl("-n", "probe", "get", "pods", "-o", "json"))["items"]
        by_node = {item["spec"]["nodeName"]: item for item in items}
        assert len(by_node) == len(items), "two pods are on one node"
        return {
            number: (item["metadata"]["name"], item["status"]["podIP"])
            for number in (1, 2, 3)
            if (item := by_node[self.cluster.layout.node(number).node_name])
        }

    def store(self, number: int) -> Store:
        """Return the image store of a node."""
        layout = self.cluster.layout.node(number)
        return Store(layout.containerd_socket, layout.containerd_store)

    def link(self, number: int, *act: str) -> int:
        """Run the command that cuts, slows down or mends a link, and return its exit status."""
        layout = self.cluster.layout
        which = ["--name", layout.name, "--state-root", str(layout.state_root)]
        return main(["link", *which, "--node", str(number), *act])

    def reaches(self, pod: str, address: str) -> bool:
        """Whether the pod gets an answer from this address."""
        url = f"http://{address}:8080"
        return self.try_kubectl("-n", "probe", "exec", pod, "--", "/probe", "get", url).stdout != ""


@pytest.fixture(scope="module")
def user(before: Machine, state_root: Path, bin_dir: Path) -> Iterator[SeveralNodes]:
    """Yield the user of a cluster that is down at first, and is removed afterwards."""
    assert before["links"]  # the machine was looked at before the cluster could change it
    cluster = Cluster("several", bin_dir, state_root)
    try:
        yield SeveralNodes(cluster)
    finally:
        cluster.down(purge=True)


@pytest.fixture
def several(user: SeveralNodes, probe_image: Path, tmp_path: Path) -> SeveralNodes:
    """Return three nodes and their pods, mended if the test before broke them or took them down.

    The image is imported only on the first node.
    """
    status = user.cluster.status()
    if status.state != "up" or len(status.nodes) < 3:
        user.cluster.up(3)
    if user.has_pods != user.uid():
        user.kubectl("-n", "probe", "delete", "statefulset,pod", "--all", "--now")
        user.ctr("images", "import", str(probe_image))
        pods = tmp_path / "pods.yaml"
        pods.write_text(SPREAD.read_text().replace("DATA_ROOT", str(user.cluster.data_root)))
        user.run_pods(pods)
        user.has_pods = user.uid()
    return user


def test_each_node_is_ready_under_a_name_of_its_own(several: SeveralNodes) -> None:
    """Each node is ready and has its own name and its own range of pod addresses."""
    nodes = several.nodes()
    assert list(nodes) == ["sandbox-several", "sandbox-several-2", "sandbox-several-3"]
    assert {several.ready(name) for name in nodes} == {"True"}
    ranges = [node["spec"]["podCIDR"] for node in nodes.values()]
    assert ranges == ["10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"]
    assert list(several.cluster.status().nodes) == list(nodes)


def test_pods_of_three_nodes_find_each_other_by_name(several: SeveralNodes) -> None:
    pods = several.pods()
    for here, _ in pods.values():
        for there, _ in pods.values():
            assert several.fetch(here, f"http://{there}.web:8080") == there


def test_a_service_leads_to_pods_of_other_nodes(several: SeveralNodes) -> None:
    pod, _ = several.pods()[2]
    seen: set[str] = set()

    def not_seen() -> str | None:
        seen.add(several.fetch(pod, "http://any"))
        return None if len(seen) == 3 else f"only {seen}"

    wait_until("all three pods to answer", not_seen, timeout_seconds=LIMIT_SECONDS)


def test_all_nodes_have_the_same_data_folder(several: SeveralNodes) -> None:
    (several.cluster.data_root / "written").write_text("on the host")
    for number in (1, 2, 3):
        seen = subprocess.run(
            several.cluster.enter("cat", str(several.cluster.data_root / "written"), number=number),
            capture_output=True,
            text=True,
            check=True,
        )
        assert seen.stdout == "on the host"


def test_an_image_of_the_first_node_costs_the_others_no_disk(several: SeveralNodes) -> None:
    """An image of the first node is linked into the other nodes' stores, and needs no
    further disk.
    """
    first, second = several.store(1), several.store(2)
    digest = first.images()[PROBE_IMAGE]
    assert second.images()[PROBE_IMAGE] == digest
    rows = second.ctr("images", "check", f"name=={PROBE_IMAGE}").splitlines()
    assert rows[1].split()[3] == "complete"
    (layer,) = json.loads(first.blob(digest).read_text())["layers"]
    assert first.blob(layer["digest"]).samefile(second.blob(layer["digest"]))
    files = {file.stat().st_ino for file in unpacked(first)}
    assert files & {file.stat().st_ino for file in unpacked(second)}


def unpacked(store: Store) -> list[Path]:
    """Return the program of the image where it is unpacked."""
    return list(store.root.glob("io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/probe"))


def test_a_linked_image_outlives_a_collection_of_garbage(
    several: SeveralNodes, tmp_path: Path
) -> None:
    """A linked image survives containerd's collection of garbage, though no image refers to it
    until the pull for which it was linked has ended.
    """
    first, third = several.store(1), several.store(3)
    program = tmp_path / "probe"
    program.write_bytes(unpacked(first)[0].read_bytes() + b"\n\n")  # another layer
    image, other = "registry.example/probe:kept", "registry.example/probe:other"
    (tmp_path / "kept.tar").write_bytes(image_archive(program, image))
    several.ctr("images", "import", str(tmp_path / "kept.tar"))
    digest = first.images()[image]
    link_image(first, third, digest)
    third.ctr("images", "tag", PROBE_IMAGE, other)
    third.ctr("images", "remove", "--sync", other)  # collects garbage at once
    (layer,) = json.loads(first.blob(digest).read_text())["layers"]
    assert layer["digest"] in third.ctr("content", "ls", "--quiet").split()
    config = json.loads(first.blob(digest).read_text())["config"]["digest"]
    assert third.has_layers(json.loads(first.blob(config).read_text())["rootfs"]["diff_ids"][0])


def test_an_image_that_cannot_be_linked_is_pulled(several: SeveralNodes, tmp_path: Path) -> None:
    """An image that cannot be linked, because it is not unpacked, is pulled from the first node."""
    program = tmp_path / "probe"
    program.write_bytes(unpacked(several.store(1))[0].read_bytes() + b"\n")  # another layer
    program.chmod(0o755)
    image = "registry.example/probe:sent"
    (tmp_path / "sent.tar").write_bytes(image_archive(program, image))
    several.ctr("images", "import", "--no-unpack", str(tmp_path / "sent.tar"))
    overrides = {"spec": {"nodeName": "sandbox-several-3", "terminationGracePeriodSeconds": 0}}
    several.kubectl(
        *("-n", "probe", "run", "sent", f"--image={image}", "--image-pull-policy=IfNotPresent"),
        *(f"--overrides={json.dumps(overrides)}", "--", "serve", ":8080"),
    )
    try:
        several.kubectl("-n", "probe", "wait", "pod/sent", "--for=condition=Ready", "--timeout=80s")
        assert (
            "registry.example/probe is not linked"
            in several.cluster.log("image-mirror").read_text()
        )
    finally:
        several.kubectl("-n", "probe", "delete", "pod", "sent", "--now")


def test_a_cut_link_is_felt_until_it_is_mended(several: SeveralNodes) -> None:
    """A cut link separates one node from the others until it is mended. The other nodes still reach
    each other.
    """
    (here, _), (_, there) = several.pods()[2], several.pods()[3]
    several.fetch(here, f"http://{there}:8080")
    assert several.link(3, "--cut") == 0
    try:
        assert not several.reaches(here, there)
        # The other nodes are still reached.
        several.fetch(here, f"http://{several.pods()[1][1]}:8080")
    finally:
        assert several.link(3, "--mend") == 0
    several.fetch(here, f"http://{there}:8080")


def test_a_slow_link_is_slow_in_both_directions_until_it_is_mended(
    several: SeveralNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    def limits() -> list[bool]:
        ends = ((1, at_first(2)), (2, TO_FIRST))
        shown = [
            subprocess.run(
                several.cluster.enter("tc", "qdisc", "show", "dev", name, number=number),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for number, name in ends
        ]
        return ["tbf" in text and "rate 1Mbit" in text for text in shown]

    try:
        assert several.link(2, "--rate", "1mbit") == 0
        assert limits() == [True, True]
        assert several.link(2, "--rate", "fast") == 1
        assert "fast" in capsys.readouterr().err
    finally:
        assert several.link(2, "--mend") == 0
    assert limits() == [False, False]


def test_a_killed_node_is_named_and_the_next_up_brings_it_back(several: SeveralNodes) -> None:
    """`status` names a node whose processes were killed, and the next `up` brings it back without
    touching the first node.
    """
    uid, lost = several.uid(), several.cluster.node(3)
    pod, _ = several.pods()[3]
    holder = lost.holder
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    wait_until("the end", lambda: "alive" if holder.is_alive() else None, timeout_seconds=60)
    status = several.cluster.status()
    assert status.state == "broken"
    assert "node sandbox-several-3: its processes have been killed" in status.problems
    several.cluster.up()
    assert several.cluster.status().state == "up"
    assert several.uid() == uid  # the same cluster: the first node was left alone
    assert several.fetch("web-0", f"http://{pod}.web:8080") == pod  # the pod is back on its node


def test_nodes_join_a_running_cluster_and_are_taken_away(several: SeveralNodes) -> None:
    """`up` with another number of nodes adds or removes nodes of the same running cluster."""
    uid = several.uid()
    several.has_pods = ""  # Kubernetes deletes the pods of a lost node, sooner or later
    several.cluster.up(1)
    assert list(several.nodes()) == ["sandbox-several"]
    assert list(several.cluster.status().nodes) == ["sandbox-several"]
    # Their images stay.
    assert [each.number for each in several.cluster.layout.further_nodes()] == [2, 3]
    several.cluster.up(2)
    assert list(several.nodes()) == ["sandbox-several", "sandbox-several-2"]
    assert several.uid() == uid
    with pytest.raises(ValueError, match="--nodes 10 is not possible: use 1 to 9"):
        several.cluster.up(10)


def test_down_leaves_nothing_of_any_node(
    several: SeveralNodes, before: Machine, state_root: Path
) -> None:
    """`down` leaves only data and images of any node on this machine, and `down` with purge leaves
    nothing.
    """
    root = several.cluster.layout.root
    during = left_behind(before, machine(state_root), state_root)
    # The lists do show a running cluster.
    assert {"processes", "links", "routes", "cgroups"} <= set(during)
    third = several.cluster.layout.node(3)
    assert sum(str(third.root) in line for line in during["processes"]) >= 4
    assert any(third.host_link in line for line in during["links"])
    assert any(third.identity in line for line in during["cgroups"])
    several.cluster.down()
    kept = {str(root / name) for name in ("containerd", "data", "node2", "node3")}
    assert left_behind(before, machine(state_root), state_root) == {"state": kept}
    for name in ("node2", "node3"):
        assert [path.name for path in (root / name).iterdir()] == ["containerd"]
    several.cluster.down(purge=True)
    assert left_behind(before, machine(state_root), state_root) == {}
