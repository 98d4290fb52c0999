"""The network profile, and what the run does where the ranks take another transport than its."""

from collections.abc import Mapping

from infra.settings.kinds import Chosen, NetworkChoice, read_kind
from infra.settings.pods import PodSettings
from infra.settings.reader import Reader
from trainer.transport.asked import OWN_VARIABLES

KEY = "run.train.transport_policy"


def read_network(reader: Reader, networks: Mapping[str, NetworkChoice]) -> Chosen:
    """Read the setting `network`, and let the profile look at its options."""
    chosen = read_kind(reader, "network", "networkOptions", networks)
    if chosen.options is not None:
        try:
            networks[chosen.name].with_options(chosen.options)
        except ValueError as error:
            reader.problems.append(f"{error}.")
    return chosen


def check_transport_policy(
    reader: Reader, policy: str, network: NetworkChoice, pods: PodSettings
) -> None:
    """Note what keeps the ranks' transport from being known, where `stop` has to know it.

    Args:
        reader: collects what is wrong.
        policy: warn or stop.
        network: the profile, which says what is asked for.
        pods: their variables.
    """
    if policy != "stop":
        return
    if not network.transports:
        reason = f"network: {network.name} asks for no transport, so none can be a wrong one"
        reader.problem(KEY, policy, reason, "Remove it, or let the profile name its transports")
    for key, variables in (("podEnvironment", pods.environment), ("podSecrets", pods.secrets)):
        for name in OWN_VARIABLES:
            if name in variables:
                reason = f"{key}.{name} makes NCCL print where its transport is not looked for"
                reader.problem(KEY, policy, reason, f"Remove {key}.{name}, or set warn")
