"""`imageDelivery: mirror` when code, nodes or the setting change, or a port is blocked.

test_mirror.py has the usual case.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.lab import counts, failure
from tests.node.lan import NAMES, SERVER_ADDRESS, Lan
from tests.node.shared_image import (
    DEPS_BYTES,
    FIRST,
    HOST,
    NAME,
    TALK_BYTES,
    SharedImage,
    shared_image,
)

pytestmark = pytest.mark.stand_in("its agents, and its embedded registry that notes what it gives")
TWO, THREE = NAMES


@pytest.fixture
def shared(lan: Lan, tmp_path: Path) -> Iterator[SharedImage]:
    """Yield a stack with an image, and hosts with a containerd."""
    with shared_image(lan, tmp_path) as made:
        yield made


def test_wiped_node_alone_pulls_again_and_new_code_goes_the_same_way(shared: SharedImage) -> None:
    """A node that has lost its image pulls it again from the others, and no other node does.

    After a change of the code, only its layer is sent: over SSH once, and from there to the other
    nodes.
    """
    stack = shared.make_stack(imageDeliveryOptions={"keepUnusedMinutes": 0})
    stack.up()
    digest = shared.digest(FIRST)
    shared.wipe(THREE)
    before, given = shared.received(), {name: len(shared.given(name)) for name in shared.hosts}
    assert re.findall(r"~\s+\S*\s*\S*image-ensure\S*", stack.preview())
    output = stack.up()
    assert counts(output)["updated"] == 1, output
    assert f"image-ensure-{THREE}" in output
    assert max(shared.sent_since(before).values()) < TALK_BYTES
    assert shared.digest(THREE) == digest
    again = [row for name in shared.hosts for row in shared.given(name)[given[name] :]]
    assert {address for address, _, _ in again} == {address(THREE)}
    assert sum(size for _, _, size in again) > DEPS_BYTES
    assert set(counts(stack.up())) == {"unchanged"}

    shared.change_code("changed = True\n")
    before, given = shared.received(), {name: len(shared.given(name)) for name in shared.hosts}
    output = stack.up()
    assert max(shared.sent_since(before).values()) < TALK_BYTES
    assert len(re.findall("MB imported", output)) == 1
    assert set(shared.digests().values()) == {shared.digest(FIRST)} != {digest}
    again = [row for name in shared.hosts for row in shared.given(name)[given[name] :]]
    assert {address for address, _, _ in again} == {address(TWO), address(THREE)}
    assert sum(size for _, _, size in again) < TALK_BYTES
    for host in shared.hosts.values():  # The former image is gone with all of its names.
        assert digest not in host.shell("k3s ctr -n k8s.io images ls")
    stack.destroy()


def test_kind_changes_in_both_directions_and_the_image_stays(shared: SharedImage) -> None:
    """`imageDelivery` can change from `import` to `mirror` and back, and every node keeps its
    image.

    The settings of k3s change with it, and the image is not sent again.
    """
    stack = shared.make_stack(imageDelivery="import")
    before = shared.received()
    stack.up()
    assert min(shared.sent_since(before).values()) > DEPS_BYTES  # Each machine gets all of it.
    digests = shared.digests()
    assert len(set(digests.values())) == 1
    for kind, is_shared in (("mirror", True), ("import", False)):
        stack.set("imageDelivery", kind)
        before = shared.received()
        output = stack.up()
        assert not {"created", "deleted", "replaced"} & counts(output).keys(), output
        assert max(shared.sent_since(before).values()) < TALK_BYTES
        assert shared.digests() == digests
        assert ("embedded-registry" in shared.config(FIRST, "config.yaml")) is is_shared
        for name in shared.hosts:
            assert (HOST in shared.config(name, "registries.yaml")) is is_shared
        assert set(counts(stack.up())) == {"unchanged"}
        if is_shared:  # A node can now pull from the first machine what was imported there before.
            shared.wipe(TWO)
            stack.up()
            assert shared.digests() == digests
            assert shared.given(FIRST)
            assert max(shared.sent_since(before).values()) < TALK_BYTES * 2
    stack.destroy()
    assert shared.lan.lab.differences() == []


def test_node_that_gets_it_from_nobody_says_so_and_the_next_up_finishes(
    shared: SharedImage,
) -> None:
    """A node that cannot pull the image from any other makes `up` fail, with the node's own words.

    The other machine gets the image all the same, and the next `up` succeeds when the way is free.
    """
    stack = shared.make_stack(imageDeliveryOptions={"pullTimeoutSeconds": 60})
    with blocked(shared, TWO):
        said = failure(stack)
    assert re.search(rf"on {shared.hosts[TWO].address}:22: k3s crictl pull {NAME}@sha256:", said)
    assert re.search(r"FATA\[\d+\] pulling image", said)
    assert "No other node has given the image within 60 s" in said
    digests = shared.digests()
    assert digests[TWO] == ""
    assert digests[THREE] == digests[FIRST] != ""
    before = shared.received()
    output = stack.up()
    assert set(shared.digests().values()) == {digests[FIRST]}
    assert max(shared.sent_since(before).values()) < TALK_BYTES, output
    stack.destroy()


class blocked:  # noqa: N801 - it is used like a function
    """A context in which a node's packets to port 5001 of the others are lost."""

    def __init__(self, shared: SharedImage, name: str) -> None:
        pid = str(shared.hosts[name].pid)
        self._command = ["nsenter", "--target", pid, "--net", "--", "iptables", "--wait"]

    def _rule(self, action: str) -> None:
        rule = ("OUTPUT", "--protocol", "tcp", "--dport", "5001", "--jump", "DROP")
        subprocess.run([*self._command, action, *rule], check=True)

    def __enter__(self) -> None:
        self._rule("-I")

    def __exit__(self, *_: object) -> None:
        self._rule("-D")


def address(name: str) -> str:
    """Return the address by which the other nodes know a node."""
    return f"{SERVER_ADDRESS.rpartition('.')[0]}.{2 + NAMES.index(name)}"
