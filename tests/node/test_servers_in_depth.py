"""The loss of the first machine, alone or with another: what `up` refuses, and the way out."""

import json

import pytest

from infra.kube.gone_cluster import VARIABLE
from sandbox.stack import PulumiFailedError, Stack
from tests.node.host import Host
from tests.node.lab import DATA_ROOT, Lab, failure
from tests.node.lan import NAMES, Lan, find_again, lose, switch_off
from tests.node.members import SERVER, set_nodes

pytestmark = pytest.mark.stand_in("its servers, which need no other machine's container runtime")
TWO, THREE = NAMES
ADDRESS_OF_TWO = "192.0.2.2"


def test_lost_first_server_gives_way_to_a_new_platform(lan: Lan) -> None:
    """After the loss of the first server, the steps that the refusal names lead to a new platform.

    docs/node.md has the same steps. `up` refuses to take another server as the first machine at
    once.
    """
    lab, second = lan.lab, lan.machines[TWO].host
    nodes = lan.settings(*NAMES, role="server")
    stack = lan.stack(nodes=nodes)
    stack.up()
    switch_off(lab.host)
    try:
        assert nodes_by(second) == sorted([SERVER, *NAMES])  # Two of three servers go on.
        name_as_first(stack, second.address, second.host_key)
        set_nodes(stack, lan.settings(THREE))
        for said in (preview_failure(stack), failure(stack)):
            assert f"sshHost: '{second.address}' cannot be used: this machine has joined" in said
            assert "  3. Only if the first machine does not answer, let the stack" in said
        assert nodes_by(second) == sorted([SERVER, *NAMES])
        name_as_first(stack, lab.host.address, lab.host_key)
        set_nodes(stack, nodes)
        stack.set("hostGone", "true")
        stack.up()
        stack.destroy()
        assert [machine.differences() for machine in lan.machines.values()] == [[], []]
        name_as_first(stack, second.address, second.host_key)
        stack.set("nodeAddress", ADDRESS_OF_TWO)
        stack.set("hostGone", "false")
        set_nodes(stack, lan.settings(THREE))
        stack.up()
        # The stand-in of k3s gives every first machine this name, whatever its host name.
        assert nodes_by(second) == sorted([SERVER, THREE])
        stack.destroy()
        assert second.exists(f"{DATA_ROOT}/runs")  # The data stay.
    finally:
        come_back(lab)
        second.shell(f"rm -rf {DATA_ROOT}")
    assert [machine.differences() for machine in lan.machines.values()] == [[], []]


def test_first_machine_and_another_one_are_lost_together(lan: Lan) -> None:
    """If another machine is lost with the first one, `up` asks to mark it as gone as well.

    The third machine is left clean.
    """
    lab, second = lan.lab, lan.machines[TWO].host
    stack = lan.stack(*NAMES)
    stack.up()
    switch_off(lab.host)
    lose(second)
    try:
        stack.set("hostGone", "true")
        silent = f"which do not answer either: {TWO} ({second.address}: "
        assert silent in preview_failure(stack)
        assert silent in failure(stack)
        set_nodes(stack, lan.settings(TWO, gone=True) + lan.settings(THREE))
        stack.up()
        stack.destroy()
        assert lab.resources(stack) == []
        assert lan.machines[THREE].differences() == []
    finally:
        come_back(lab)
        find_again(second)


def test_machine_is_lost_after_the_first_one(lan: Lan) -> None:
    """A machine that is lost after the first one can be given up in `destroy`.

    No `up` can mark it as gone, because the first machine is marked as lost by then.
    """
    lab, second = lan.lab, lan.machines[TWO].host
    stack = lan.stack(*NAMES)
    stack.up()
    switch_off(lab.host)
    try:
        stack.set("hostGone", "true")
        stack.up()
        lose(second)
        with pytest.raises(PulumiFailedError, match=f"{second.address} cannot be reached") as error:
            stack.destroy()
        assert f"let the stack forget it: {VARIABLE}=true pulumi destroy" in str(error.value)
        stack.environment[VARIABLE] = "true"
        assert "is forgotten" in stack.destroy()
        assert lab.resources(stack) == []
        assert lan.machines[THREE].differences() == []
    finally:
        come_back(lab)
        find_again(second)


def name_as_first(stack: Stack, address: str, host_key: str) -> None:
    """Name a machine as the first one in the settings."""
    stack.set("sshHost", address)
    stack.set("sshHostKey", host_key)


def preview_failure(stack: Stack) -> str:
    """Return the output of a preview that must fail."""
    with pytest.raises(PulumiFailedError) as error:
        stack.preview()
    return str(error.value)


def nodes_by(host: Host) -> list[str]:
    """Return the names of the cluster's nodes, as the server on this host knows them."""
    cache = "env KUBECACHEDIR=/run/k3s/disttrain-kubectl"  # keeps the cache out of root's home
    found = json.loads(host.shell(f"{cache} k3s kubectl get nodes --output=json"))
    return sorted(item["metadata"]["name"] for item in found["items"])


def come_back(lab: Lab) -> None:
    """Let the first machine's k3s start again from now on, and start its sshd."""
    lab.host.shell("rm -f /lab/fail-to-start")
    find_again(lab.host)
