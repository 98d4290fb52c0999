"""Three hosts, each with its own containerd, and a small image that is delivered to all of them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.image.dependencies import layout_folder
from infra.image.oci import Image
from infra.image.plan import ImagePlan, plan_image
from infra.image.platforms import this_machine
from sandbox.components import host_program
from sandbox.stack import Stack
from tests.node.host import Host
from tests.node.lan import BRIDGE, NAMES, Lan
from tests.unit.image.layouts import tiny_image, write_layout

HOST = "images.disttrain.internal"  # no machine has this name
NAME = f"{HOST}/trainer"
DEPS_BYTES = 20_000_000  # random bytes, which cannot be compressed
TALK_BYTES = 3_000_000  # the most that an `up` sends to a host beside the image
FIRST = "first"
PROGRAMS = ("containerd", "ctr")


class SharedImage:
    """A stack whose image is already built, and the hosts to which it is delivered."""

    stack: Stack

    def __init__(self, lan: Lan, scratch: Path) -> None:
        self.lan = lan
        self.hosts: dict[str, Host] = {FIRST: lan.lab.host}
        self.hosts |= {name: machine.host for name, machine in lan.machines.items()}
        self._cache = scratch / "cache"
        self.dependencies: Image = tiny_image(os.urandom(DEPS_BYTES))

    def make_stack(self, **changes: Any) -> Stack:
        """Return a stack with a platform on all hosts.

        Its k3s uses the network between the hosts.
        """
        self.stack = self.lan.stack(
            **{
                "nodes": self.lan.settings(*NAMES, interface=BRIDGE),
                "nodeInterface": BRIDGE,
                "imageDelivery": "mirror",
                "imageRepository": NAME,
                "imageBase": "scratch",
                **changes,
            }
        )
        self.stack.environment["DISTTRAIN_CACHE"] = str(self._cache)
        layout = layout_folder(self.plan(), self._cache, this_machine())
        write_layout(layout, self.dependencies)
        return self.stack

    def plan(self) -> ImagePlan:
        """Return the plan of the image, from which its name and digest come."""
        return plan_image(self.stack.project, NAME, "scratch", None)

    def change_code(self, text: str) -> None:
        """Change the trainer's code, only in this stack's checkout."""
        folder = self.stack.project / "trainer"
        if folder.is_symlink():
            source = folder.resolve()
            folder.unlink()
            shutil.copytree(source, folder)
        (folder / "changed.py").write_text(text)

    def received(self) -> dict[str, int]:
        """Return bytes that each host got from this machine, which sends only SSH to it."""
        counter = "cat /sys/class/net/node0/statistics/rx_bytes"
        return {name: int(host.shell(counter)) for name, host in self.hosts.items()}

    def sent_since(self, before: dict[str, int]) -> dict[str, int]:
        """Return bytes that each host got from this machine since `before`."""
        return {name: count - before[name] for name, count in self.received().items()}

    def given(self, name: str) -> list[tuple[str, str, int]]:
        """Return `(address, digest, bytes)` of each blob that a host's k3s has sent to others."""
        rows = self.hosts[name].shell("cat /lab/sent 2>/dev/null || true").splitlines()
        return [(row.split()[0], row.split()[1], int(row.split()[2])) for row in rows]

    def digests(self) -> dict[str, str]:
        """For each host, the digest of its complete image of the planned name, or empty."""
        return {name: self.digest(name) for name in self.hosts}

    def digest(self, name: str) -> str:
        """Return the digest of a host's complete image of the planned name, or an empty text."""
        check = f"k3s ctr -n k8s.io images check name=={self.plan().reference}"
        rows = self.hosts[name].shell(check).splitlines()[1:]
        return rows[0].split()[2] if rows and rows[0].split()[3] == "complete" else ""

    def wipe(self, name: str) -> None:
        """Empty a host's containerd, as if the disk of its containers were replaced."""
        self.hosts[name].shell(
            "for kind in leases images; do for each in $(k3s ctr -n k8s.io $kind ls -q); do "
            "k3s ctr -n k8s.io $kind rm --sync $each; done; done >/dev/null"
        )
        assert self.hosts[name].shell("k3s ctr -n k8s.io content ls -q") == ""

    def config(self, name: str, file: str) -> str:
        """Return the text of a file of k3s' configuration; empty if there is none."""
        return self.hosts[name].shell(f"cat /etc/rancher/k3s/{file} 2>/dev/null || true")


@contextmanager
def shared_image(lan: Lan, scratch: Path) -> Iterator[SharedImage]:
    """Give the stand-in of k3s on each host a real containerd during the block."""
    assert lan.lab.api
    for program in PROGRAMS:
        shutil.copy(host_program(program), lan.lab.api.folder)
    made = SharedImage(lan, scratch)
    try:
        yield made
    finally:
        for host in made.hosts.values():
            host.shell("rm -f /lab/sent")
        for program in PROGRAMS:
            (lan.lab.api.folder / program).unlink()
