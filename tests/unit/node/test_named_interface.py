"""The network interface that the settings name must be one with which k3s starts."""

from pathlib import Path

import pytest

from tests.unit.node.k3s_host import K3sHost, RefusedError


@pytest.fixture(params=["agent", "server"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> K3sHost:
    return K3sHost(tmp_path, request.param)


def test_interface_with_several_addresses_is_refused(host: K3sHost) -> None:
    """An interface with several IPv4 addresses is refused, for example one with an address that
    moves between machines. Otherwise k3s would end at each start, and `up` would wait in vain.
    """
    host.has_interface("10.9.0.4/24", "10.9.0.100/24")
    with pytest.raises(RefusedError) as refusal:
        host.run("create", "gpu2", NODE_INTERFACE="eth1")
    assert "eth1 of this host has several IPv4 addresses" in str(refusal.value)
    assert "(10.9.0.4 10.9.0.100)" in str(refusal.value)
    assert not host.runs


@pytest.mark.parametrize(
    "addresses",
    [["10.9.0.4/24"], ["10.9.0.4/24", "fd00::4/64"], ["fd00::4/64", "fd00::5/64"]],
)
def test_one_address_of_ipv4_is_enough(host: K3sHost, addresses: list[str]) -> None:
    """An interface may have any number of IPv6 addresses, of which k3s takes the first one, and at
    most one of IPv4.
    """
    host.has_interface(*addresses)
    host.run("create", "gpu2", NODE_INTERFACE="eth1")
    assert host.runs
