"""k3s on machines with nm-cloud-setup, a service of NetworkManager in images of the RHEL family."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError

# As older installers of k3s do: the unit that they write starts k3s only if the service is off.
REFUSES = """\
line="ExecStartPre=/bin/sh -xc '! /usr/bin/systemctl is-enabled --quiet nm-cloud-setup.service'"
trap 'echo "$line" >>ROOT/etc/systemd/system/k3s-agent.service' EXIT
"""


def machine(folder: Path) -> K3sHost:
    """Return a machine on which the service is enabled."""
    host = K3sHost(folder)
    (host.root / "enabled-nm-cloud-setup.service").touch()
    return host


def test_enabled_cloud_setup_is_named(tmp_path: Path) -> None:
    """If k3s' own unit would not start k3s because of the service, the error says so, and what to
    do. systemd only shows the command that the unit has run. After that was done, k3s starts.
    """
    host = machine(tmp_path)
    from_mirror = host.installs_k3s_by(REFUSES)
    with pytest.raises(RefusedError, match="systemctl disable --now nm-cloud-setup"):
        host.run("create", "gpu2", **from_mirror)
    assert not host.runs
    (host.root / "enabled-nm-cloud-setup.service").unlink()
    host.run("create", "gpu2", **from_mirror)
    assert host.runs


def test_unit_that_allows_it_starts(tmp_path: Path) -> None:
    """Newer installers write a unit that starts k3s all the same, as NetworkManager 1.32 has
    mended what disturbed the pods.
    """
    host = machine(tmp_path)
    host.run("create", "gpu2")
    assert host.runs
