"""The host name of the first machine, of which k3s makes the name of its node."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError


def first_machine(folder: Path, name: str) -> K3sHost:
    """Return a machine with this host name."""
    host = K3sHost(folder, "server")
    host.has_program("uname", f"[ $1 = -n ] && echo {name} || echo x86_64")
    return host


@pytest.mark.parametrize("name", ["gpu_01", "gpu01-", "a" * 64])
def test_host_name_of_no_node_is_refused(tmp_path: Path, name: str) -> None:
    """A host name that no node can have is refused before anything is installed. k3s would start
    with it, and `up` would wait for a node that never comes.
    """
    with pytest.raises(RefusedError) as refusal:
        first_machine(tmp_path, name).update_first()
    assert f"the host name {name} of this host cannot be the name of a node" in str(refusal.value)
    assert "hostnamectl set-hostname NAME" in str(refusal.value)


@pytest.mark.parametrize("name", ["GPU01", "gpu-01.Example.org", "7"])
def test_capitals_and_dots_are_allowed(tmp_path: Path, name: str) -> None:
    """Capital letters, which k3s changes, and dots are allowed."""
    assert "would change" in first_machine(tmp_path, name).update_first()


def test_further_machine_may_have_any_host_name(tmp_path: Path) -> None:
    """The host name of a further machine does not matter: its node has the name in `nodes`."""
    host = first_machine(tmp_path, "gpu_02")
    host.run("create", "gpu2")
    assert host.runs
