"""Refuses what would take k3s away from a host by mistake, before anything is changed there."""

import asyncio
from dataclasses import dataclass

import pulumi

from infra.dependencies import dependencies
from infra.node.runner import EitherWayRunner, Script
from infra.platform.k3s import LookAtK3s
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
        host: where k3s is, and the way there.
        namespace: Kubernetes namespace of the platform.
        owner: identifies the platform, whose own run goes with it.
        existing: the setting `k3sExisting`: an adopted k3s stays on the host.
    """

    host: HostSettings
    namespace: str
    owner: pulumi.Input[str]
    existing: str


async def check_adoption(
    cluster: ClusterSettings, look: LookAtK3s | None, owner: pulumi.Output[str]
) -> None:
    """Refuse `k3sExisting: adopt` for the stack's own k3s while nothing is registered yet.

    The script of `HostGuard` refuses it too, but a preview does not run that, and showed all that
    is in the cluster as replaced. Where the host could not be asked, `up` leaves it to the script.

    Args:
        cluster: the setting.
        look: what the host has said about its k3s; None: it was not asked.
        owner: identifies this platform; unknown before its first `up`.

    Raises:
        pulumi.RunError: this platform has installed the k3s of the host.
    """
    if look is None or cluster.k3s.existing != "adopt":
        return
    if await _is_ours(look, owner):
        raise pulumi.RunError(OWN_K3S)


async def check_way(host: HostSettings, look: LookAtK3s | None, owner: pulumi.Output[str]) -> None:
    """Refuse that the first machine is reached in the other way than when k3s was installed on it.

    A host here and a host behind SSH are two machines to the engine: it would set up the one, and
    then take k3s from the other, which is the same one.

    Args:
        host: of the settings.
        look: what it has said about its k3s; None: it was not asked.
        owner: identifies this platform; unknown before its first `up`.

    Raises:
        pulumi.RunError: this platform has installed the k3s of the host by the other way.
    """
    if look is None:
        return
    noted = (await asyncio.wrap_future(look)).way
    if noted and noted != host.kind and await _is_ours(look, owner):
        raise pulumi.RunError(same_machine(host, noted))


def same_machine(host: HostSettings, noted: str) -> str:
    """Why the setting `host` cannot be changed for this machine, and what can be done, for people.

    Args:
        host: of the settings.
        noted: what `host` was when k3s was installed.
    """
    which = f"sshHost {host.ssh.host!r} leads to the machine" if host.ssh else "this is the machine"
    return (
        f"host: {host.kind!r} cannot be used: {which} on which this stack has already installed "
        f"k3s, with host: {noted}. A change of this setting moves k3s to another machine, and then "
        "removes it from the old one. Here both are the same machine, so k3s would be removed. "
        f"Nothing was changed. Either set it back (pulumi config set host {noted}), or run pulumi "
        f"destroy with host: {noted} first, which keeps the data, and then pulumi up with host: "
        f"{host.kind}."
    )


async def _is_ours(look: LookAtK3s, owner: pulumi.Output[str]) -> bool:
    """Whether this platform has installed the k3s that was found."""
    noted = (await asyncio.wrap_future(look)).owner
    return bool(noted) and noted == await owner.future()


class HostGuard(pulumi.ComponentResource):
    """Looks at the host before anything is changed there, and before it is left for another one.

    Its `create` refuses a value of `k3sExisting` that does not fit the k3s of the host: with
    `adopt` a k3s that this stack has installed would look like somebody else's, and with `refuse`
    somebody else's like a new one of ours.

    When `host` or `sshHost` becomes another one, the command is replaced. To replace it means to
    run its `delete` first, on the old host: that looks for runs of other stacks there. All that
    changes something on a host depends on it, so when it refuses, nothing has been changed on
    either host. `pulumi destroy` comes to it last, when there is nothing left to guard: there
    DestroyGuard has looked first.
    """

    guarded: pulumi.Output[str]
    """The namespace of the platform."""

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
        # One type of command for a host here and for one behind SSH: see infra/node/on_host.py.
        EitherWayRunner(host).run(
            f"{name}-look",
            Script("k3s-guard.sh", variables, replace_on_another_host=True),
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.guarded = pulumi.Output.from_input(args.namespace)
        self.register_outputs({"guarded": self.guarded})
