"""Whether the further machines answer where the first one is lost."""

from collections.abc import Mapping, Sequence

import pulumi

from infra.node.k3s_look import K3sLook
from infra.settings import NodeSettings


def check_answers(nodes: Sequence[NodeSettings], looks: Mapping[str, K3sLook]) -> None:
    """Look whether `pulumi destroy`, which comes next then, can take k3s from all machines.

    It would fail at one that does not answer, when no `pulumi up` could mark that one as lost any
    more.

    Args:
        nodes: the list.
        looks: what was found on the machines that were asked, by their names.

    Raises:
        pulumi.RunError: one does not answer.
    """
    silent = [
        f"{node.name} ({node.ssh.host}: {looks[node.name].problem})"
        for node in nodes
        if node.name in looks and looks[node.name].problem
    ]
    if silent:
        raise pulumi.RunError(
            "hostGone: true cannot be used with these machines of nodes, which do not answer "
            f"either: {', '.join(silent)}. `pulumi destroy` could not take k3s from them. Nothing "
            "was changed. Set `gone: true` at the place of each that is lost, and let the others "
            "answer first."
        )
