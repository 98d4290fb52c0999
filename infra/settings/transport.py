"""`run.train.transport_policy: stop`, where nobody could tell that another transport was taken."""

from infra.settings.kinds import NetworkChoice
from infra.settings.pods import PodSettings
from infra.settings.reader import Reader
from trainer.transport.asked import OWN_VARIABLES

KEY = "run.train.transport_policy"


def check_transport_policy(
    reader: Reader, policy: str, network: NetworkChoice, pods: PodSettings
) -> None:
    """Note what keeps the ranks' transport from being known.

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
