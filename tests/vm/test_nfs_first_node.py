"""The scripts of the storage `nfs-first-node` with Linux' own NFS server and clients.

They run in a virtual machine with Debian's kernel, as in test_nfs.py. Debian's package manager and
systemd are in tests/node/test_nfs_server.py, where the kernel has no NFS server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.packages import VIRTUAL_MACHINE_PACKAGES, ensure_packages
from sandbox.say import say
from tests.vm.debian import debian
from tests.vm.machine import Machine

pytestmark = pytest.mark.timeout(1800)
GUEST = "tests.vm.guest.first_node"
FOLDER = "/srv/training"
ITSELF, EAST, WEST = "10.98.0.1", "10.98.1.2", "10.98.2.2"
SECONDS = 240


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Yield a virtual machine with a server that is off, and with the clients `east` and `west`."""
    ensure_packages(VIRTUAL_MACHINE_PACKAGES)
    made = Machine(debian(), tmp_path_factory.mktemp("vm"))
    try:
        say(f"started in {made.boot_seconds:.0f} s")
        made.call(f"{GUEST}:begin", SECONDS)
        yield made
    finally:
        made.close()


def ask(machine: Machine, function: str, **words: Any) -> Any:
    """Call a function of the guest's module `first_node`, and return its result."""
    return machine.call(f"{GUEST}:{function}", SECONDS, **words)


def run(machine: Machine, name: str, action: str = "create", **variables: str) -> str:
    """Run a script on the server. It must succeed; return its output."""
    done = ask(machine, "script", name=name, action=action, variables=variables)
    assert done["status"] == 0, done["said"]
    return done["said"]


def allow(machine: Machine, node: str, client: str, action: str = "create") -> str:
    """Let a client mount the folder, or take its permission back with the action `delete`."""
    return run(machine, "nfs-export.sh", action, NODE=node, CLIENT=client)


def test_server_of_the_first_machine_from_its_start_to_its_end(machine: Machine) -> None:
    """A machine can use the first machine's folder as long as it has permission, and no other one
    can.

    The trainer's user of one machine writes files that the first machine sees through its own
    mount. The `delete` of the server's script leaves the data, and nothing else.
    """
    first = ask(machine, "seen")
    assert (first["served"], first["files"], first["threads"]) == ([], None, 0)

    said = run(machine, "nfs-server.sh")
    assert f"{FOLDER} is served by NFS at {ITSELF}" in said
    assert ask(machine, "seen")["served"] == [[FOLDER, ITSELF]]
    ask(machine, "mount_itself")
    assert "denied" in ask(machine, "mount", name="east")

    allow(machine, "east", EAST)
    assert ask(machine, "mount", name="east") == ""
    assert "denied" in ask(machine, "mount", name="west")
    assert ask(machine, "write", name="east", file="one") == ""
    assert ask(machine, "read_itself", file="one") == {"text": "one", "is_of_trainer": True}

    before = ask(machine, "seen")
    run(machine, "nfs-server.sh")
    allow(machine, "east", EAST)
    assert ask(machine, "seen") == before, "a second run changes nothing"

    ask(machine, "restart")
    assert ask(machine, "seen")["served"] == [[FOLDER, ITSELF], [FOLDER, EAST]]
    assert ask(machine, "write", name="east", file="two") == ""

    allow(machine, "west", WEST)
    assert ask(machine, "mount", name="west") == ""
    allow(machine, "west-renamed", WEST)
    allow(machine, "west", WEST, "delete")
    assert ask(machine, "write", name="west", file="three") == ""

    allow(machine, "east", EAST, "delete")
    assert ask(machine, "write", name="east", file="four") != "", "it is shut out at once"
    assert ask(machine, "write", name="west", file="five") == "", "the other one is not"
    assert ask(machine, "seen")["data"] == ["five", "lost+found", "one", "three", "two"]

    for name in ("east", "west"):
        ask(machine, "unmount", name=name)
    ask(machine, "unmount_itself")
    said = run(machine, "nfs-server.sh", "delete")
    assert "the data are kept" in said
    last = ask(machine, "seen")
    assert last.pop("data") == ["five", "lost+found", "one", "three", "two"]
    first.pop("data")
    assert last == first
