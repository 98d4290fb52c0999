"""`pulumi up` with three servers: they keep the cluster together when one of them is lost.

Each has a real etcd behind the stand-in of k3s: who is a member, who votes and whether more than
half are there is what etcd says. More of it is in test_server_steps.py, and the loss of the first
machine in test_servers_in_depth.py.
"""

import pytest

from tests.node.lab import CommandLines, counts, failure
from tests.node.lan import NAMES, Lan, find_again, switch_off
from tests.node.members import SERVER, TOKENS, holding, set_nodes

pytestmark = pytest.mark.stand_in("its servers, which need no other machine's container runtime")
TWO, THREE = NAMES
JOINED_BY = "/etc/rancher/k3s/disttrain-token"
KEPT_BY_K3S = "/var/lib/rancher/k3s/server/token"


def test_three_servers_bear_the_loss_of_one_and_the_list_forgets_it(lan: Lan) -> None:
    """Up says which one is lost and what to do; the token is where root alone reads it."""
    lab = lan.lab
    stack = lan.stack(nodes=lan.settings(*NAMES, role="server"))
    host = lan.machines[THREE].host
    with CommandLines() as watch:
        output = stack.up()
        own, of_agents = (
            lab.host.shell(f"cat /var/lib/rancher/k3s/server/{name}").strip().rpartition(":")[2]
            for name in TOKENS
        )
        assert lan.etcd() == {SERVER: True, TWO: True, THREE: True}
        assert sorted(lan.members()) == sorted([SERVER, *NAMES])
        for machine in lan.machines.values():
            assert machine.host.shell(f"stat -c '%a %U' {JOINED_BY}").strip() == "600 root"
            assert sorted(holding(machine.host, own)) == [JOINED_BY, KEPT_BY_K3S]
        state = lab.state(stack) + stack.export()
        switch_off(host)
        try:
            # the cluster answers, and up does not hang
            assert sorted(lan.members()) == sorted([SERVER, *NAMES])
            said = failure(stack)
            assert f"{host.address} cannot be reached" in said
            assert "set `gone: true` at its place in nodes" in said
            gone = lan.settings(THREE, role="server", gone=True)
            set_nodes(stack, [*lan.settings(TWO, role="server"), *gone])
            output += said + stack.up()
            assert lan.etcd() == {SERVER: True, TWO: True}
            assert sorted(lan.members()) == sorted([SERVER, TWO])
            assert lan.passwords() == [TWO]
            # back to one: the last further server leaves, and the first machine goes on alone
            started = lab.host.shell("systemctl show --property=MainPID --value k3s")
            set_nodes(stack, [])
            output += stack.up()
            assert lan.etcd() == {SERVER: True}
            assert list(lan.members()) == [SERVER]
            assert lab.host.shell("systemctl show --property=MainPID --value k3s") == started
            assert set(counts(stack.up())) == {"unchanged"}
            output += stack.destroy()
        finally:
            find_again(host)
    output += lab.host.shell("journalctl --no-pager --all --output=cat")
    output += "".join(machine.log() for machine in lan.machines.values())
    for secret in (own, of_agents):
        assert secret not in output
        assert secret not in state
        assert not [line for line in watch.seen if secret.encode() in line]
    assert lab.differences() == []
    assert lan.machines[TWO].differences() == []
