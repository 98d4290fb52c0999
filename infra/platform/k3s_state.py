"""Asks the first machine about its k3s before its commands run, and says what that means for them.

The machine is asked (infra/node/k3s_observation.py) because the engine itself cannot see what has
happened to k3s since the last `up`.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import pulumi

from infra.node.k3s_observation import HostAccess, K3sObservation, observe_k3s
from infra.settings import ClusterSettings, HostSettings

FURTHER = {"k3s-server": "server", "k3s-agent": "agent"}
FutureObservation: TypeAlias = Future[K3sObservation]
# If changes of these inputs are ignored, a command stays as it is in the state: it neither runs nor
# is replaced.
ALL_INPUTS = ("stdin", "triggers")


def start_observing_k3s(cluster: ClusterSettings, host: HostSettings) -> FutureObservation | None:
    """Begin to ask the host about its k3s, while the rest of the program goes on.

    Returns:
        The future answer, for `ClusterArgs.observation`; None if the cluster is not a k3s,
        or if its host is lost.
    """
    if cluster.kind != "k3s" or host.gone:
        return None
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="observe-k3s")
    future = executor.submit(observe_k3s, HostAccess(**host.access_fields()))
    executor.shutdown(wait=False)
    return future


@dataclass(frozen=True)
class K3sState:
    """What was found on the host.

    Args:
        observation: what the host has said about its k3s.
        ignored: names of inputs of the commands whose changes the engine ignores.
    """

    observation: K3sObservation
    ignored: tuple[str, ...]


def k3s_state(
    asked: FutureObservation | None,
    cluster: ClusterSettings,
    host: HostSettings,
    *,
    is_preview: bool,
) -> K3sState:
    """Wait for the host's answer about its k3s, and decide what it means for the commands.

    If the host could not be asked, a preview shows the commands as they are in the state, and warns
    about that. An `up` runs the commands, which succeed or fail with a reason. It never replaces
    k3s then.

    Args:
        asked: the result of `start_observing_k3s`.
        cluster: the settings of the cluster.
        host: the host.
        is_preview: whether this is a preview.

    Raises:
        pulumi.RunError: the host is a further machine of a cluster, such as a server that is to
            replace a lost first machine.
    """
    if asked is None:
        return K3sState(K3sObservation("", ""), ALL_INPUTS)
    observation = asked.result()
    if observation.role in FURTHER:
        raise pulumi.RunError(further_machine(host, FURTHER[observation.role]))
    if cluster.k3s.existing == "adopt":
        # This stack never repairs or replaces an adopted k3s, even if another stack of this program
        # owns it. It only fetches the kubeconfig again when that has changed.
        observation = K3sObservation(
            observation.kubeconfig or observation.repair_id, "", observation.problem
        )
    if not observation.problem:
        return K3sState(observation, ())
    where = host.ssh.host if host.ssh else "this machine"
    if is_preview:
        pulumi.log.warn(not_shown(where, observation.problem))
        return K3sState(observation, ALL_INPUTS)
    pulumi.log.warn(not_asked(where, observation.problem))
    return K3sState(observation, ("triggers",))


def not_shown(where: str, problem: str) -> str:
    """Tell people why a preview shows the commands of a machine as they are in the state."""
    return (
        f"{where} could not be asked about its k3s ({problem}), so this preview does not show what "
        "would be done to it"
    )


def not_asked(where: str, problem: str) -> str:
    """Tell people why `up` runs a command again that may have nothing to change."""
    return (
        f"{where} could not be asked about its k3s ({problem}), so its command runs again: it "
        "changes nothing on a machine that is well"
    )


def further_machine(host: HostSettings, role: str) -> str:
    """Tell people why the host cannot be the first machine, and what to do.

    Args:
        host: the host that the settings name as the first machine.
        role: the role in which it has joined a cluster: `server` or `agent`.
    """
    key, value = ("sshHost", host.ssh.host) if host.ssh else ("host", "localhost")
    also = "sshHostKey and nodeAddress" if host.ssh else "nodeAddress"
    return (
        f"{key}: {value!r} cannot be used: this machine has joined a cluster of this program as a "
        f"further machine ({role}), and no setting makes a further machine the first one. Nothing "
        "was changed.\n"
        f"If the first machine is to stay, set {key} back to it, and nodes to what it was.\n"
        "If it is lost for good, or has to leave, make a new platform in place of this one:\n"
        f"  1. Set {key} and nodes back to what they were.\n"
        "  2. Let the run save and end: ./disttrain stop\n"
        "     (Where the first machine does not answer, this cannot work. Then do what stands in\n"
        "     docs/node.md, The first machine is lost.)\n"
        "  3. Only if the first machine does not answer, let the stack forget it:\n"
        "     pulumi config set hostGone true, and then pulumi up\n"
        "  4. Remove the platform: pulumi destroy\n"
        "     It takes k3s from the other machines, and keeps the data.\n"
        f"  5. Make this machine the first one: set {key} to it, {also}\n"
        "     to its own, and hostGone to false. Take it out of nodes.\n"
        "  6. Make the new platform: pulumi up\n"
        "     The run goes on from its last checkpoint, unless its data were on a lost machine."
    )
