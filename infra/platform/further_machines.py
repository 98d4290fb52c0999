"""Registers the further machines of a platform, and what they need before they join."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeAlias

import pulumi

from infra.node.agent import STATE_SCRIPT
from infra.node.doctor import Doctor, DoctorArgs, machine_plan
from infra.node.k3s_observation import HostAccess, K3sObservation, observe_k3s
from infra.node.node_environment import host_text, host_variable
from infra.node.runner import host_runner
from infra.platform.airgap_files import SentBundle, SentBundleArgs, bundle_variables
from infra.platform.further_machine import FurtherMachine, FurtherMachineArgs
from infra.platform.host import HostTrust, HostTrustArgs
from infra.platform.k3s_variables import api_address, k3s_variables, server_variables
from infra.platform.machines_found import check_answers, check_apart
from infra.platform.nfs_server import NfsMachine, NfsMachineArgs, NfsServer
from infra.platform.owner import whose
from infra.platform.repair import repair_of
from infra.settings import NodeSettings, PlatformSettings

Observations: TypeAlias = Mapping[str, "Future[K3sObservation]"]


@dataclass(frozen=True)
class FurtherMachinesArgs:
    """What all further machines of a platform have in common.

    Args:
        settings: the settings of the platform.
        observations: the result of `start_observing_machines`.
        owner: the identity of the platform.
        generation: a text that changes when the first machine's k3s has become another cluster.
        first_k3s: the k3s of the first machine.
        nfs: the NFS server from which the machines mount the data; None: there is none.
    """

    settings: PlatformSettings
    observations: Observations
    owner: pulumi.Input[str]
    generation: pulumi.Input[str]
    first_k3s: pulumi.Resource
    nfs: NfsServer | None

    @property
    def whose(self) -> Mapping[str, pulumi.Input[str]]:
        """Variables with which a script records on a machine which stack made something there."""
        return whose(self.owner, self.settings.stack)


def start_observing_machines(settings: PlatformSettings) -> Observations:
    """Begin to ask all further machines about their k3s, each in a thread of its own.

    The program goes on meanwhile. Machines that the user has marked as lost are not asked.

    Returns:
        The answer of each machine, as a future, by the machine's name.
    """
    nodes = [node for node in settings.nodes if not node.host.gone]
    if not nodes:
        return {}
    executor = ThreadPoolExecutor(max_workers=len(nodes), thread_name_prefix="observe-agents")
    futures = {
        node.name: executor.submit(
            observe_k3s,
            HostAccess(**node.host.access_fields()),
            script=STATE_SCRIPT,
            variables={"ROLE": node.role},
        )
        for node in nodes
    }
    executor.shutdown(wait=False)
    return futures


async def check_machines(settings: PlatformSettings, observations: Observations) -> None:
    """Check, before anything is registered, what the further machines have said about themselves.

    Args:
        settings: the settings of the platform.
        observations: the result of `start_observing_machines`.

    Raises:
        pulumi.RunError: two items of `nodes` lead to the same machine; or the first machine is
            lost, and a further one that is not marked as lost does not answer.
    """
    found = {
        name: await asyncio.wrap_future(observation) for name, observation in observations.items()
    }
    check_apart(settings.nodes, found)
    if settings.host.gone:
        check_answers(settings.nodes, found)


def make_further_machines(args: FurtherMachinesArgs) -> list[FurtherMachine]:
    """Register all further machines.

    All of them wait for the k3s of the first machine. Servers join one after the other, because
    etcd accepts only one new member at a time, and leave in the reverse order. Agents wait for all
    servers, and not for each other.
    """
    settings = args.settings
    if settings.host.gone:
        args = replace(
            args, observations={}
        )  # Without the first machine there is nothing to repair.
    made: list[FurtherMachine] = []
    # A lost server comes first: its command takes it out of etcd, and etcd accepts no new member
    # while a member does not answer.
    for node in sorted(servers(settings), key=lambda node: not node.host.gone):
        made.append(_make(args, node, [args.first_k3s, *made[-1:]]))
    agents = [node for node in settings.nodes if not node.is_server]
    after_servers = [args.first_k3s, *made]
    return [*made, *(_make(args, node, after_servers) for node in agents)]


def servers(settings: PlatformSettings) -> list[NodeSettings]:
    """The further machines that are servers, in the order of the setting `nodes`."""
    return [node for node in settings.nodes if node.is_server]


def _make(
    args: FurtherMachinesArgs, node: NodeSettings, after: list[pulumi.Resource]
) -> FurtherMachine:
    """Register one machine and its doctor, which examines it before anything is done there.

    The doctor runs while the first machine is being installed. The machine joins after the
    resources in `after`.
    """
    settings, name = args.settings, f"node-{node.name}"
    future = args.observations.get(node.name)
    observation = future.result() if future else None
    examined: list[pulumi.Resource] = []
    if not node.host.gone:
        doctor = DoctorArgs(machine_plan(settings, node), settings.doctor)
        examined.append(Doctor(f"{name}-doctor", doctor))
    examined += _prepare(name, args, node, observation, examined)
    if args.nfs:
        runner = host_runner(node.host)
        repair, gone = repair_of(observation), node.host.gone
        machine = NfsMachineArgs(node.name, node.ssh.host, args.nfs, runner, gone, repair)
        opts = pulumi.ResourceOptions(depends_on=[*examined])
        after = [*after, NfsMachine(f"{name}-nfs", machine, opts)]
    machine_args = FurtherMachineArgs(
        node=node,
        first_machine=settings.host,
        server_url=f"https://{api_address(settings.cluster)}:6443",
        variables={
            **args.whose,
            **_variables(settings, node),
            **bundle_variables(settings.bundle, node.host),
        },
        grace_seconds=settings.limits.termination_grace_seconds,
        generation=args.generation,
        observation=observation,
        begins_after=examined,
        joins_after=after,
    )
    return FurtherMachine(name, machine_args, _renamed(settings, observation))


def _renamed(
    settings: PlatformSettings, observation: K3sObservation | None, end: str = ""
) -> pulumi.ResourceOptions | None:
    """Options for a machine that has a new name in the settings; None if its name is the same.

    Without them the engine would see two machines: a new one, which joins first, and a former one,
    which leaves last. A single machine cannot do that. With the alias the machine stays the same
    resource. So it leaves before it joins, and it keeps its authorities and the bundle's files.

    Args:
        settings: the settings of the platform.
        observation: what was found on the machine, with the name that it has in the cluster.
        end: the last part of the resource's name, after the name of the machine.
    """
    before = observation.node if observation else ""
    if not before or before in (node.name for node in settings.nodes):
        return None
    return pulumi.ResourceOptions(aliases=[pulumi.Alias(name=f"node-{before}{end}")])


def _variables(settings: PlatformSettings, node: NodeSettings) -> Mapping[str, pulumi.Input[str]]:
    """The variables of k3s on the machine. NO_PROXY in them names machines of the platform.

    The API server on a server connects to the kubelets of all machines, so NO_PROXY names all of
    them. An agent does not connect to the other machines, so its NO_PROXY names only its own
    address. If a machine is added, nothing changes for the agents, and their k3s is not restarted.
    """
    cluster, proxy, registry = settings.cluster, settings.proxy, settings.shared_registry
    if node.is_server:
        return {
            **k3s_variables(cluster, proxy.past_proxy(proxy.machines), registry),
            **server_variables(cluster, node.ssh.host, registry),
        }
    return k3s_variables(cluster, proxy.past_proxy((node.ssh.host,)), registry)


def _prepare(
    name: str,
    args: FurtherMachinesArgs,
    node: NodeSettings,
    observation: K3sObservation | None,
    after: list[pulumi.Resource],
) -> list[pulumi.Resource]:
    """Register what the first machine gets too: the authorities, and the files of the bundle."""
    settings, by_us = args.settings, args.whose
    runner, repair = host_runner(node.host), repair_of(observation)
    made: list[pulumi.Resource] = []

    def opts(end: str) -> pulumi.ResourceOptions:
        ours = pulumi.ResourceOptions(depends_on=[*after])
        return pulumi.ResourceOptions.merge(ours, _renamed(settings, observation, end))

    if settings.proxy.ca_bundle:
        trust = HostTrustArgs(settings.proxy.ca_bundle, runner, by_us, node.name, repair)
        made.append(HostTrust(f"{name}-trust", trust, opts("-trust")))
    if settings.bundle:
        way, address = host_variable(host_text(node.host)), node.ssh.host
        sent = SentBundleArgs(settings.bundle, way, address, runner, by_us, node.name, repair)
        made.append(SentBundle(f"{name}-bundle", sent, opts("-bundle")))
    return made
