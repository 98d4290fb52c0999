"""Refuses a setting `nodes` after its machines were asked what they are."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import pulumi

from infra.node.k3s_observation import K3sObservation
from infra.settings import NodeSettings


def check_apart(nodes: Sequence[NodeSettings], observations: Mapping[str, K3sObservation]) -> None:
    """Check that each item of the setting `nodes` is a machine of its own.

    Reading the settings has already checked that their addresses differ. But a name and an address,
    or two addresses, can lead to the same machine.

    Args:
        nodes: the setting `nodes`.
        observations: what was found on the machines that were asked, by the machines' names.

    Raises:
        pulumi.RunError: two of them lead to the same machine.
    """
    known = [
        node for node in nodes if node.name in observations and observations[node.name].machine
    ]
    for one, two in combinations(known, 2):
        machine = observations[one.name].machine
        if machine != observations[two.name].machine:
            continue
        id, _, address = machine.partition(" ")
        raise pulumi.RunError(
            f"nodes: {one.name} ({one.ssh.host}) and {two.name} ({two.ssh.host}) cannot be used: "
            f"both lead to one machine, with the machine-id {id} and the address {address}, and a "
            "machine is one node. Nothing was changed. Take one of the two out of nodes."
        )


def check_answers(
    nodes: Sequence[NodeSettings], observations: Mapping[str, K3sObservation]
) -> None:
    """Check, if the first machine is lost, that all others answer.

    Without the first machine, `pulumi destroy` is the next step, which takes k3s from the others.
    It would fail at a machine that does not answer, and then no `pulumi up` could mark that machine
    as lost any more.

    Args:
        nodes: the setting `nodes`.
        observations: what was found on the machines that were asked, by the machines' names.

    Raises:
        pulumi.RunError: a machine that is not marked as lost does not answer.
    """
    silent = [
        f"{node.name} ({node.ssh.host}: {observations[node.name].problem})"
        for node in nodes
        if node.name in observations and observations[node.name].problem
    ]
    if silent:
        raise pulumi.RunError(
            "hostGone: true cannot be used with these machines of nodes, which do not answer "
            f"either: {', '.join(silent)}. `pulumi destroy` could not take k3s from them. Nothing "
            "was changed. Set `gone: true` in the item of each machine that is lost, and let the "
            "others answer first."
        )
