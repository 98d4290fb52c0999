"""What makes the scripts restart a k3s that runs."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost


def is_restarted(host: K3sHost, **more: str) -> bool:
    return host.run("create", "gpu2", **more).splitlines()[-1] != "started="


@pytest.mark.parametrize("role", ["agent", "server"])
def test_other_authorities_reach_containerd(tmp_path: Path, role: str) -> None:
    """It reads those of the host once, as it starts: images were still refused (x509)."""
    host = K3sHost(tmp_path, role)
    assert is_restarted(host)
    assert not is_restarted(host)
    for authorities in ("0a1b", "2c3d"):
        assert is_restarted(host, AUTHORITIES=authorities)
        assert not is_restarted(host, AUTHORITIES=authorities)
    assert not is_restarted(host)  # what it trusts beyond what it has to does not matter
    assert is_restarted(host, AUTHORITIES="2c3d")


def test_k3s_of_an_older_version_goes_on_with_its_authorities(tmp_path: Path) -> None:
    """That version has not noted with which ones it was started."""
    host = K3sHost(tmp_path)
    host.run("create", "gpu2", AUTHORITIES="0a1b")
    record = host.root / "etc/rancher/disttrain"
    record.write_text(record.read_text().replace("authorities 0a1b\n", ""))
    assert not is_restarted(host, AUTHORITIES="0a1b")
    assert is_restarted(host, AUTHORITIES="2c3d")
