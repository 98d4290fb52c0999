"""Reads the network profile, and what a run does if its ranks use another transport."""

from collections.abc import Mapping

from infra.settings.compute import ComputeSettings
from infra.settings.kind_options import read_kind
from infra.settings.kinds import Chosen, NetworkChoice
from infra.settings.pods import PodSettings
from infra.settings.reader import Reader
from trainer.transport.asked import OWN_VARIABLES

KEY = "run.train.transport_policy"


def read_network(
    reader: Reader, networks: Mapping[str, NetworkChoice], annotations: Mapping[str, str]
) -> Chosen:
    """Read the setting `network`, and let the profile check its options.

    Args:
        reader: gives the values and collects the problems with them.
        networks: the registry of network profiles.
        annotations: the setting `podAnnotations`.
    """
    chosen = read_kind(reader, "network", "networkOptions", networks)
    if chosen.options is not None:
        try:
            made = networks[chosen.name].with_options(chosen.options)
        except ValueError as error:
            reader.add_problem(f"{error}.")
        else:
            _refuse_annotations(reader, chosen.name, made, annotations)
    return chosen


def _refuse_annotations(
    reader: Reader, name: str, made: NetworkChoice, annotations: Mapping[str, str]
) -> None:
    """Refuse annotations of the user that would take the place of those of the profile."""
    for key in sorted(made.annotations.keys() & annotations.keys()):
        reason = f"network: {name} sets this annotation, and the pods would lose that one"
        hint = "Remove it here, and name all networks in networkOptions.attachments"
        reader.problem(f"podAnnotations.{key}", annotations[key], reason, hint)


def check_use_of_network(
    reader: Reader, network: NetworkChoice, compute: ComputeSettings, *, several_pods: bool
) -> None:
    """Note a problem if the pods would get network devices that their ranks never use.

    Args:
        reader: collects the problems that are found.
        network: the network profile.
        compute: numbers of pods and GPUs.
        several_pods: whether the topology may have several pods.
    """
    if not network.for_nccl_between_pods:
        return
    world, other = compute.world, "Set pod-tcp and remove networkOptions, or set"
    if not world.gpus_per_pod:
        reason = "accelerator is cpu, and this profile is for NCCL, which needs GPUs"
        reader.problem("network", network.name, reason, f"{other} accelerator: gpu")
    elif world.pods == 1 and reader.are_right("pods", "topology"):
        why = "pods: 1" if several_pods else f"topology: {compute.topology.name}"
        reason = f"the run has one pod ({why}), whose ranks need no network"
        more = "more pods" if several_pods else "a topology of several pods"
        reader.problem("network", network.name, reason, f"{other} {more}")


def check_contradictions(reader: Reader, network: NetworkChoice, pods: PodSettings) -> None:
    """Note a problem for each variable of the user with which the ranks would use another network.

    Args:
        reader: collects the problems that are found.
        network: the network profile.
        pods: the pods' settings, with their variables.
    """
    secrets = {name: secret.text for name, secret in pods.secrets.items()}
    for key, variables in (("podEnvironment", pods.environment), ("podSecrets", secrets)):
        for name, values in network.contradictions.items():
            # NCCL and libfabric do not tell upper from lower case in these values.
            if variables.get(name, "").lower() in map(str.lower, values):
                path = f"{key}.{name}"
                why = (
                    f"network: {network.name} is set, and with this variable NCCL would not use it"
                )
                hint = f"Remove it: pulumi config rm --path {path}"
                reader.problem(path, variables[name], why, hint)


def check_transport_policy(
    reader: Reader, policy: str, network: NetworkChoice, pods: PodSettings
) -> None:
    """Note a problem if `transport_policy` is `stop` and the ranks' transport would stay unknown.

    Args:
        reader: collects the problems that are found.
        policy: the setting `run.train.transport_policy`: `warn` or `stop`.
        network: the network profile, which names the transports that ranks should use.
        pods: the pods' settings, with their variables.
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
