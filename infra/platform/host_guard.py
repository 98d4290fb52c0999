"""Refuses changes of the settings that would remove k3s from a host by mistake."""

import asyncio
from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.node.runner import EitherWayRunner, Script
from infra.platform.k3s_state import FutureObservation
from infra.settings import ClusterSettings, HostSettings

OWN_K3S = (
    "k3sExisting: 'adopt' cannot be used: this stack has installed the k3s of this host itself, "
    "and would take it for somebody else's. Nothing was changed. Set it back: "
    "pulumi config set k3sExisting refuse"
)


@dataclass(frozen=True)
class HostGuardArgs:
    """The host, and whose runs may be on it.

    Args:
        host: the host with k3s, and how it is reached.
        namespace: Kubernetes namespace of the platform.
        owner: identifies the platform. Its own runs do not keep the stack from leaving the host.
        existing: the setting `k3sExisting`. An adopted k3s stays on the host.
    """

    host: HostSettings
    namespace: str
    owner: pulumi.Input[str]
    existing: str


async def check_adoption(
    cluster: ClusterSettings, observation: FutureObservation | None, owner: pulumi.Output[str]
) -> None:
    """Refuse `k3sExisting: adopt` for the stack's own k3s, before anything is registered.

    The script of `HostGuard` refuses it too. But a preview does not run that script, and would show
    everything in the cluster as replaced. If the host could not be asked, only the script refuses.

    Args:
        cluster: the settings of the cluster.
        observation: what the host has said about its k3s; None: it was not asked.
        owner: identifies this platform; unknown before its first `up`.

    Raises:
        pulumi.RunError: this platform has installed the k3s of the host.
    """
    if observation is None or cluster.k3s.existing != "adopt":
        return
    if await _is_ours(observation, owner):
        raise pulumi.RunError(OWN_K3S)


async def check_host_setting(
    host: HostSettings, observation: FutureObservation | None, owner: pulumi.Output[str]
) -> None:
    """Refuse to change the setting `host` between `local` and `ssh` for the same machine.

    For the engine, this machine and a machine behind SSH are two machines. It would install k3s on
    the one, and then remove it from the other. If both are the same machine, k3s would be gone at
    the end.

    Args:
        host: the host in the settings.
        observation: what that host has said about its k3s; None: it was not asked.
        owner: identifies this platform; unknown before its first `up`.

    Raises:
        pulumi.RunError: this platform has installed the k3s of the host with the other value of
            the setting `host`.
    """
    if observation is None:
        return
    noted = (await asyncio.wrap_future(observation)).host_setting
    if noted and noted != host.kind and await _is_ours(observation, owner):
        raise pulumi.RunError(same_machine(host, noted))


def same_machine(host: HostSettings, noted: str) -> str:
    """Tell people why the setting `host` cannot be changed for this machine, and what to do.

    Args:
        host: the host in the settings.
        noted: the value of the setting `host` when k3s was installed.
    """
    which = f"sshHost {host.ssh.host!r} leads to the machine" if host.ssh else "this is the machine"
    return (
        f"host: {host.kind!r} cannot be used: {which} on which this stack has installed k3s with "
        f"host: {noted}. To change host means to set k3s up on the new machine, and then to remove "
        "it from the old one. Here both are one machine, so that k3s would be gone at the end. "
        "Nothing was changed.\n"
        "If the cluster is to stay as it is, set host back:\n"
        f"  pulumi config set host {noted}\n"
        f"If you want to reach this machine with host: {host.kind} from now on, make the cluster "
        "anew; the data stay:\n"
        f"  1. pulumi config set host {noted}\n"
        "  2. pulumi destroy\n"
        f"  3. pulumi config set host {host.kind}\n"
        "  4. pulumi up"
    )


async def _is_ours(observation: FutureObservation, owner: pulumi.Output[str]) -> bool:
    """Whether this platform has installed the k3s that was found."""
    noted = (await asyncio.wrap_future(observation)).owner
    return bool(noted) and noted == await owner.future()


class HostGuard(pulumi.ComponentResource):
    """Checks the host before anything is changed there, and before the stack moves to another host.

    Its `create` refuses a value of `k3sExisting` that does not fit the k3s of the host. With
    `adopt`, a k3s that this stack has installed would count as somebody else's. With `refuse`,
    somebody else's k3s would count as a new one of this stack.

    If `host` or `sshHost` changes, the engine replaces the command: it first runs the `delete` on
    the old host, which looks for runs of other stacks there. Everything that changes a host depends
    on this command. So when it refuses, nothing has been changed on either host. `pulumi destroy`
    deletes this command last, when there is nothing left to guard. DestroyGuard has done the checks
    by then.
    """

    def __init__(
        self, name: str, args: HostGuardArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:HostGuard", name, {}, opts)
        host = args.host
        variables = {
            "NAMESPACE": args.namespace,
            "OWNER": args.owner,
            "K3S_EXISTING": args.existing,
        }
        # The command has the same type for this machine and for a host behind SSH:
        # infra/node/on_host.py says why.
        EitherWayRunner(host).run(
            f"{name}-look",
            Script("k3s-guard.sh", variables, replace_on_another_host=True),
            child_options(self, opts),
        )
        self.register_outputs({})
