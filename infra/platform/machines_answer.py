"""Checks, if the first machine is lost, whether the further machines answer."""

from collections.abc import Mapping, Sequence

import pulumi

from infra.node.k3s_observation import K3sObservation
from infra.settings import NodeSettings


def check_answers(
    nodes: Sequence[NodeSettings], observations: Mapping[str, K3sObservation]
) -> None:
    """Check whether `pulumi destroy` could remove k3s from all further machines.

    Without the first machine, `pulumi destroy` is the next step. It would fail at a machine that
    does not answer, and then no `pulumi up` could mark that machine as lost any more.

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
            "was changed. Set `gone: true` at the place of each that is lost, and let the others "
            "answer first."
        )
