"""`pulumi up` where machines of `nodes` get other names: one of them, or two that swap theirs."""

import pytest

from tests.node.lab import counts, failure
from tests.node.lan import NAMES, Lan
from tests.node.members import SERVER, set_nodes

pytestmark = pytest.mark.stand_in("its agents, which need no other machine's container runtime")


def test_machine_with_another_name_leaves_before_it_joins(lan: Lan) -> None:
    """A machine that gets another name in `nodes` leaves the cluster and then joins under the new
    name.

    Pulumi's engine by itself would let the new one join first, and the old one would then remove
    k3s.
    """
    two, three = NAMES
    stack, host = lan.stack(*NAMES), lan.machines[two].host
    stack.up()
    other = lan.machines[three].host
    started = other.shell("systemctl show --property=MainPID --value k3s-agent")
    item = {**lan.settings(two)[0], "name": "gpu-new"}
    set_nodes(stack, [item, *lan.settings(three)])
    output = stack.up()
    assert counts(output)["replaced"] == 3, output  # its mark, its files, and its joining
    assert sorted(lan.members()) == sorted([SERVER, "gpu-new", three])
    assert lan.passwords() == sorted(["gpu-new", three])
    assert host.shell("systemctl is-active k3s-agent").strip() == "active"
    assert other.shell("systemctl show --property=MainPID --value k3s-agent") == started
    assert set(counts(stack.up())) == {"unchanged"}, output
    stack.destroy()
    assert [machine.differences() for machine in lan.machines.values()] == [[], []]


def test_two_machines_can_swap_their_names(lan: Lan) -> None:
    """Two machines of `nodes` can swap their names in one `up`."""
    two, three = NAMES
    stack = lan.stack(*NAMES)
    stack.up()
    at_two, at_three = (lan.settings(name)[0] for name in NAMES)
    set_nodes(stack, [{**at_three, "name": two}, {**at_two, "name": three}])
    output = stack.up()
    members = lan.members()
    assert sorted(members) == sorted([SERVER, two, three])
    for name, was in ((two, three), (three, two)):
        (entry, *_) = members[name]["status"]["addresses"]
        found = lan.machines[was].host.shell("ip -4 -o address show scope global")
        assert f" {entry['address']}/" in found, output
    for machine in lan.machines.values():
        assert machine.host.shell("systemctl is-active k3s-agent").strip() == "active"
    assert set(counts(stack.up())) == {"unchanged"}
    stack.destroy()
    assert [machine.differences() for machine in lan.machines.values()] == [[], []]


def test_machine_of_a_name_before_is_left_to_its_node(lan: Lan) -> None:
    """A renamed machine keeps its k3s even if it does not say which node it was.

    An older version has not recorded the name. The program then takes the machine for a new one,
    and the removal of the former node must not remove the k3s of the new one.
    """
    two = NAMES[0]
    stack, host = lan.stack(two), lan.machines[two].host
    stack.up()
    settings = lan.settings(two)[0]
    set_nodes(stack, [{**settings, "name": "gpu-new"}])
    host.shell(
        "sed -i '/^node /d' /etc/rancher/disttrain"
    )  # as on a host that an older version installed
    output = stack.up()
    assert f"this host is the node gpu-new by now, and not {two}" in output
    assert sorted(lan.members()) == sorted([SERVER, "gpu-new"])
    assert host.shell("systemctl is-active k3s-agent").strip() == "active"
    stack.destroy()


def test_one_machine_is_not_two_nodes(lan: Lan) -> None:
    """`up` refuses two entries of `nodes` that lead to one machine, before it changes anything.

    The two entries have different addresses. The doctor is off here, so `up` itself has to notice.
    """
    two = NAMES[0]
    jump = {"jump_host": lan.lab.host.address, "jump_host_key": lan.lab.host_key}
    again = lan.settings(two, address=f"192.0.2.{2 + NAMES.index(two)}", **jump)
    stack = lan.stack(nodes=[*lan.settings(two), {**again[0], "name": "gpu-again"}])
    said = failure(stack)
    assert f"nodes: {two} (" in said
    assert "both lead to one machine" in said
    assert lan.machines[two].differences() == lan.lab.differences() == []
    stack.destroy()
