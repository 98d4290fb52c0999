"""With `imageDelivery: mirror` the image goes to one machine, and from there to the others.

k3s and its embedded registry are stand-ins (stand_in/sharing.py). Real are sshd, the engine, the
network between the hosts and the three containerds, and so digests and counts of bytes.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.lab import counts
from tests.node.lan import NAMES, Lan
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


@pytest.fixture
def shared(lan: Lan, tmp_path: Path) -> Iterator[SharedImage]:
    """Yield a stack with an image, and hosts with a containerd."""
    with shared_image(lan, tmp_path) as made:
        yield made


def test_layers_go_to_one_machine_and_on_from_there(shared: SharedImage) -> None:
    """`up` sends the image over SSH to one machine only; the others pull it from the nodes that
    have it.

    A second `up` sends nothing, and `destroy` leaves nothing.
    """
    stack, lan = shared.make_stack(), shared.lan
    before = shared.received()
    output = stack.up()
    sent = shared.sent_since(before)
    assert DEPS_BYTES < sent[FIRST] < DEPS_BYTES + TALK_BYTES
    assert all(sent[name] < TALK_BYTES for name in NAMES), sent
    assert len(re.findall(r"MB imported", output)) == 1, output
    assert len(re.findall(r"pulled from the other nodes", output)) == 2, output

    # Each host's own containerd has the complete image with the same digest, and keeps it.
    digests = shared.digests()
    assert len(set(digests.values())) == 1
    assert "" not in digests.values()
    assert digests[FIRST] == stack.output("imageDigest")
    for host in shared.hosts.values():
        listed = host.shell("k3s ctr -n k8s.io images ls")
        assert "io.cri-containerd.pinned=pinned" in listed
        assert f"{NAME}@{digests[FIRST]}" in listed
    layer = shared.dependencies.layers[0].digest
    givers = {name: {digest for _, digest, _ in shared.given(name)} for name in shared.hosts}
    assert sum(layer in digests for digests in givers.values()) >= 1
    assert layer in givers[FIRST]

    # Only the server has the flag, and every node has the registry.
    assert "embedded-registry: true" in shared.config(FIRST, "config.yaml")
    for name in NAMES:
        assert "embedded-registry" not in shared.config(name, "config.yaml")
    assert {HOST in shared.config(name, "registries.yaml") for name in shared.hosts} == {True}

    before = shared.received()
    again = stack.up()
    assert set(counts(again)) == {"unchanged"}, again
    assert max(shared.sent_since(before).values()) < TALK_BYTES
    stack.destroy()
    assert lan.lab.differences() == []
    assert [machine.differences() for machine in lan.machines.values()] == [[], []]
