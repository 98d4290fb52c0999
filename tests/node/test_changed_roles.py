"""`pulumi up` where agents become servers, so that the cluster survives a loss, and back."""

import pytest

from tests.node.lab import DATA_ROOT, counts
from tests.node.lan import NAMES, Lan
from tests.node.members import SERVER, set_nodes

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")
ROLES = {"agent": "k3s-agent", "server": "k3s"}  # each with the service that runs it
DATA = f"{DATA_ROOT}/runs"


def services(lan: Lan) -> set[tuple[str, ...]]:
    """Return the services of k3s that run on the further machines; one element if all agree."""
    asked = "for each in k3s k3s-agent; do systemctl is-active --quiet $each && echo $each; done"
    found = (machine.host.try_shell(asked).stdout for machine in lan.machines.values())
    return {tuple(text.split()) for text in found}


@pytest.mark.timeout(1200)  # six machines leave and join
def test_agents_become_servers_and_agents_again(lan: Lan) -> None:
    """A machine whose `role` changes leaves the cluster and joins again under its name.

    Its data stay, and a second `up` changes nothing.
    """
    stack = lan.stack(*NAMES)
    stack.up()
    for machine in lan.machines.values():
        machine.host.shell(f"mkdir -p {DATA}; echo kept >{DATA}/file")
    for role in ("server", "agent"):
        set_nodes(stack, lan.settings(*NAMES, role=role))
        output = stack.up()
        assert sorted(lan.members()) == sorted([SERVER, *NAMES]), output
        assert services(lan) == {(ROLES[role],)}, output
        voters = {SERVER, *(NAMES if role == "server" else ())}
        assert lan.etcd() == dict.fromkeys(voters, True)
        assert set(counts(stack.up())) == {"unchanged"}
        for machine in lan.machines.values():
            assert machine.host.shell(f"cat {DATA}/file") == "kept\n"
    stack.destroy()
    for machine in lan.machines.values():
        machine.host.shell(f"rm -rf {DATA_ROOT}")
        assert machine.differences() == []
