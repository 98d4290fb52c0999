"""`pulumi up` with three servers: the cluster goes on when one of them is lost.

Behind the stand-in of k3s, each server has a real etcd. So the members, the votes and the majority
are those of etcd. test_server_steps.py has more cases, and test_servers_in_depth.py the loss of the
first machine.
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
    """With one of three servers lost, the cluster answers, and `up` names it and says what to do.

    With `gone: true` the cluster forgets the lost server. The servers' token is only where root
    alone can read it.
    """
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
            # The cluster answers, and `up` does not hang.
            assert sorted(lan.members()) == sorted([SERVER, *NAMES])
            said = failure(stack)
            assert f"{host.address} cannot be reached" in said
            assert "set `gone: true` in its item of nodes" in said
            gone = lan.settings(THREE, role="server", gone=True)
            set_nodes(stack, [*lan.settings(TWO, role="server"), *gone])
            output += said + stack.up()
            assert lan.etcd() == {SERVER: True, TWO: True}
            assert sorted(lan.members()) == sorted([SERVER, TWO])
            assert lan.passwords() == [TWO]
            # The last further server leaves, and the first machine goes on alone.
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
