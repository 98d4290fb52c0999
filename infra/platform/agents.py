"""Further machines, which join the k3s that this stack has installed on the first machine.

Each of them is an agent or a server of k3s. An agent only runs pods. A server also keeps a copy of
the cluster's data.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON
from infra.node.agent import LOOK, scripts
from infra.node.doctor import Doctor, DoctorArgs, machine_plan
from infra.node.k3s_look import HostAccess, K3sLook, look_at_k3s
from infra.node.node_environment import host_text, host_variable
from infra.node.runner import host_runner
from infra.platform.airgap_files import SentBundle, SentBundleArgs, bundle_variables
from infra.platform.host import HostTrust, HostTrustArgs
from infra.platform.k3s import (
    api_address,
    k3s_variables,
    not_asked,
    not_shown,
    server_variables,
)
from infra.platform.machines_answer import check_answers
from infra.platform.machines_apart import check_apart
from infra.platform.nfs_server import NfsMachine, NfsMachineArgs, NfsServer
from infra.platform.of_machine import of_machine
from infra.platform.owner import whose
from infra.platform.repair import repair_of
from infra.settings import HostSettings, NodeSettings, PlatformSettings

STEPS = f"{PYTHON} -m infra.node.agent"
Looks = Mapping[str, "Future[K3sLook]"]


@dataclass(frozen=True)
class AgentArgs:
    """What one further machine needs to join.

    Args:
        node: the settings of the machine.
        server: the first machine, which runs k3s as a server.
        server_url: URL of the first machine's API server, as the further machine reaches it.
        variables: variables of the script that runs on the machine; `_file_variables` adds those
            that only this machine has.
        grace_seconds: how many seconds pods may take to end.
        generation: a text that changes when the first machine's k3s has become another cluster.
        look: what was found on the machine; None: the user has marked it as lost.
        examined: resources that come before all commands of the machine.
        servers: resources that have to be there before the machine joins, such as the k3s of the
            first machine and the servers before this one. Bringing k3s' files to the machine does
            not wait for them.
    """

    node: NodeSettings
    server: HostSettings
    server_url: str
    variables: Mapping[str, pulumi.Input[str]] = field(repr=False)
    grace_seconds: int
    generation: pulumi.Input[str]
    look: K3sLook | None
    examined: Sequence[pulumi.Resource]
    servers: Sequence[pulumi.Resource]


class Agent(pulumi.ComponentResource):
    """The commands that bring k3s to a further machine, and that let the machine join and leave.

    The command `files` brings k3s' files to the machine while the first machine is still being
    installed. The command `k3s` joins the machine to the cluster, and its `delete` takes the
    machine out of the cluster again.

    If an `up` fails or is killed while one of these two commands runs, the state does not contain
    that command, and no `delete` would clean up after it. So a third command, the mark `begun`, is
    registered first. Its `create` does nothing. Its `delete` runs after those of the other two and
    removes what is left on the machine. Each address and role has a mark of its own: see
    `of_machine`.

    The commands run on the machine that runs Pulumi, because one of them has to talk to two hosts
    (infra/node/agent.py).

    If the address changes, k3s is removed from the previous machine. If the first machine's k3s has
    become another cluster, the machine leaves the old cluster and joins the new one. If the role
    changes, the machine leaves with the old role and joins with the new one.
    """

    joined: pulumi.Output[str]
    """What the command `k3s` printed when it last ran."""

    def __init__(
        self, name: str, args: AgentArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Agent", name, {}, opts)
        node, ignored = args.node, _ignored(args)
        machine = [node.ssh.host, *_role(node)]
        of_the_machine = [node.name, *machine]
        begun = self._command(
            of_machine(f"{name}-begun", *machine),
            ("sh -c true", f"{STEPS} clear"),
            _mark_job(args),
            of_the_machine,
            pulumi.ResourceOptions(
                depends_on=[*args.examined],
                ignore_changes=ignored,
                delete_before_replace=False,
                aliases=[pulumi.Alias(name=f"{name}-begun")],
            ),
        )
        files = self._command(
            f"{name}-files",
            (f"{STEPS} prepare", f"{STEPS} unprepare"),
            _files_job(args),
            of_the_machine,
            pulumi.ResourceOptions(depends_on=[*args.examined, begun], ignore_changes=ignored),
        )
        command = self._command(
            f"{name}-k3s",
            (f"{STEPS} create", f"{STEPS} delete"),
            _job(args),
            [node.name, node.ssh.host, args.generation, *_role(node)],
            pulumi.ResourceOptions(depends_on=[*args.servers, files], ignore_changes=ignored),
        )
        self.joined = command.stdout
        self.register_outputs({"joined": self.joined})

    def _command(
        self,
        name: str,
        words: tuple[str, str],
        job: Mapping[str, pulumi.Input[object]],
        triggers: Sequence[pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> local.Command:
        create, delete = words
        ours = pulumi.ResourceOptions(
            parent=self,
            delete_before_replace=True,
            custom_timeouts=pulumi.CustomTimeouts(create="25m", update="25m", delete="20m"),
        )
        return local.Command(
            name,
            create=create,
            delete=delete,
            # The job holds SSH keys and passwords for sudo. It does not hold the cluster's token.
            stdin=pulumi.Output.secret(pulumi.Output.json_dumps(job)),
            triggers=[*triggers],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions.merge(ours, opts),
        )


def _role(node: NodeSettings) -> list[str]:
    """Texts that change when the machine gets another role.

    The list is empty for an agent. In older versions every further machine was an agent, and the
    commands of such machines must not run again because of an update of this program.
    """
    return [node.role] if node.is_server else []


def _job(args: AgentArgs) -> dict[str, pulumi.Input[object]]:
    """The standard input of infra.node.agent for the command `k3s`."""
    node = args.node
    marks = {"TAINTS": "\n".join(node.taints)}
    role = {"ROLE": node.role} if node.is_server else {}
    repair = args.look.repair_id if args.look else ""
    agent = {**_file_variables(args), **marks, "REPAIR_ID": repair}
    member = {
        **marks,
        **role,
        "NODE": node.name,
        "LABELS": "\n".join(f"{key}={value}" for key, value in sorted(node.labels.items())),
        "GRACE_SECONDS": str(args.grace_seconds),
    }
    return {
        "server": {**args.server.way(), "gone": args.server.gone},
        "machine": {**node.host.way(), "gone": node.host.gone},
        "scripts": scripts(node.role),
        "variables": {"agent": agent, "look": role, "member": member},
        **({"role": node.role} if node.is_server else {}),
    }


def _files_job(args: AgentArgs) -> dict[str, pulumi.Input[object]]:
    """The job of the command `files`. A repair, other labels or other taints do not change it."""
    return {
        **_job(args),
        "server": {"gone": args.server.gone},
        "variables": {"agent": _file_variables(args)},
    }


def _mark_job(args: AgentArgs) -> dict[str, pulumi.Input[object]]:
    """The job of the mark. It also holds what the steps on the first machine need when the machine
    leaves the cluster."""
    node = args.node
    role = {"ROLE": node.role} if node.is_server else {}
    member = {**role, "NODE": node.name, "GRACE_SECONDS": str(args.grace_seconds)}
    return {**_job(args), "variables": {"agent": _file_variables(args), "member": member}}


def _file_variables(args: AgentArgs) -> Mapping[str, pulumi.Input[str]]:
    node = args.node
    own = {
        "NODE": node.name,
        "HOST": node.ssh.host,
        "NODE_INTERFACE": node.interface,
        "SERVER_URL": args.server_url,
    }
    return {**args.variables, **own}


def _ignored(args: AgentArgs) -> list[str] | None:
    """Inputs whose changes the engine ignores; None: it ignores none.

    If the machine could not be asked about its k3s, a preview shows its commands as they are in the
    state, and warns about that. An `up` runs the commands again.
    """
    if not (args.look and args.look.problem):
        return None
    if not pulumi.runtime.is_dry_run():
        pulumi.log.warn(not_asked(args.node.ssh.host, args.look.problem))
        return None
    pulumi.log.warn(not_shown(args.node.ssh.host, args.look.problem))
    return ["stdin"]


def start_looks(settings: PlatformSettings) -> Looks:
    """Begin to ask all further machines about their k3s, each in a thread of its own.

    The program goes on meanwhile. Machines that the user has marked as lost are not asked.

    Returns:
        The answer of each machine, as a future, by the machine's name.
    """
    nodes = [node for node in settings.nodes if not node.host.gone]
    if not nodes:
        return {}
    executor = ThreadPoolExecutor(max_workers=len(nodes), thread_name_prefix="look-at-agents")
    futures = {
        node.name: executor.submit(
            look_at_k3s,
            HostAccess(**node.host.way()),
            script=LOOK,
            variables={"ROLE": node.role},
        )
        for node in nodes
    }
    executor.shutdown(wait=False)
    return futures


async def check_machines(settings: PlatformSettings, looks: Looks) -> None:
    """Check, before anything is registered, what the further machines have said about themselves.

    Args:
        settings: the settings of the platform.
        looks: the result of `start_looks`.

    Raises:
        pulumi.RunError: two items of `nodes` lead to the same machine; or the first machine is
            lost, and a further one that is not marked as lost does not answer.
    """
    found = {name: await asyncio.wrap_future(look) for name, look in looks.items()}
    check_apart(settings.nodes, found)
    if settings.host.gone:
        check_answers(settings.nodes, found)


def make_agents(
    settings: PlatformSettings,
    looks: Looks,
    owner: pulumi.Input[str],
    generation: pulumi.Input[str],
    server: pulumi.Resource,
    nfs: NfsServer | None = None,
) -> list[pulumi.Resource]:
    """Register all further machines.

    All of them wait for the k3s of the first machine. Servers join one after the other, because
    etcd accepts only one new member at a time, and leave in the reverse order. Agents wait for all
    servers, and not for each other.

    Args:
        settings: the settings of the platform.
        looks: the result of `start_looks`.
        owner: the identity of the platform.
        generation: a text that changes when the first machine's k3s has become another cluster.
        server: the k3s of the first machine.
        nfs: the NFS server from which the machines mount the data; None: there is none.
    """
    if settings.host.gone:
        looks = {}  # Without the first machine there is no cluster, so nothing is repaired.
    made: list[pulumi.Resource] = []
    # A lost server comes first: its command takes it out of etcd, and etcd accepts no new member
    # while a member does not answer.
    for node in sorted(servers(settings), key=lambda node: not node.host.gone):
        made.append(_make(settings, node, looks, owner, generation, [server, *made[-1:]], nfs))
    agents = [node for node in settings.nodes if not node.is_server]
    first = [server, *made]
    made += [_make(settings, node, looks, owner, generation, first, nfs) for node in agents]
    return made


def servers(settings: PlatformSettings) -> list[NodeSettings]:
    """The further machines that are servers, in the order of the setting `nodes`."""
    return [node for node in settings.nodes if node.is_server]


def _make(
    settings: PlatformSettings,
    node: NodeSettings,
    looks: Looks,
    owner: pulumi.Input[str],
    generation: pulumi.Input[str],
    before: list[pulumi.Resource],
    nfs: NfsServer | None,
) -> pulumi.Resource:
    """Register one machine and its doctor, which examines it before anything is done there.

    The doctor runs while the first machine is being installed.
    """
    name = f"node-{node.name}"
    future = looks.get(node.name)
    look = future.result() if future else None
    examined: list[pulumi.Resource] = []
    if not node.host.gone:
        doctor = DoctorArgs(machine_plan(settings, node), settings.doctor)
        examined.append(Doctor(f"{name}-doctor", doctor))
    examined += _prepare(name, settings, node, look, whose(owner, settings.stack), examined)
    if nfs:
        runner = host_runner(node.host)
        repair, gone = repair_of(look), node.host.gone
        machine = NfsMachineArgs(node.name, node.ssh.host, nfs, runner, gone, repair)
        opts = pulumi.ResourceOptions(depends_on=[*examined])
        before = [*before, NfsMachine(f"{name}-nfs", machine, opts)]
    args = AgentArgs(
        node=node,
        server=settings.host,
        server_url=f"https://{api_address(settings.cluster)}:6443",
        variables={
            **whose(owner, settings.stack),
            **_variables(settings, node),
            **bundle_variables(settings.bundle, node.host),
        },
        grace_seconds=settings.limits.termination_grace_seconds,
        generation=generation,
        look=look,
        examined=examined,
        servers=before,
    )
    return Agent(name, args, _renamed(settings, look))


def _renamed(
    settings: PlatformSettings, look: K3sLook | None, end: str = ""
) -> pulumi.ResourceOptions | None:
    """Options for a machine that has a new name in the settings; None if its name is the same.

    Without them the engine would see two machines: a new one, which joins first, and a former one,
    which leaves last. A single machine cannot do that. With the alias the machine stays the same
    resource. So it leaves before it joins, and it keeps its authorities and the bundle's files.

    Args:
        settings: the settings of the platform.
        look: what was found on the machine, with the name that it has in the cluster.
        end: the last part of the resource's name, after the name of the machine.
    """
    before = look.node if look else ""
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
    settings: PlatformSettings,
    node: NodeSettings,
    look: K3sLook | None,
    by_us: Mapping[str, pulumi.Input[str]],
    after: list[pulumi.Resource],
) -> list[pulumi.Resource]:
    """Register what the first machine gets too: the authorities, and the files of the bundle."""
    runner, repair = host_runner(node.host), repair_of(look)
    made: list[pulumi.Resource] = []

    def opts(end: str) -> pulumi.ResourceOptions:
        ours = pulumi.ResourceOptions(depends_on=[*after])
        return pulumi.ResourceOptions.merge(ours, _renamed(settings, look, end))

    if settings.proxy.ca_bundle:
        trust = HostTrustArgs(settings.proxy.ca_bundle, runner, by_us, node.name, repair)
        made.append(HostTrust(f"{name}-trust", trust, opts("-trust")))
    if settings.bundle:
        way, address = host_variable(host_text(node.host)), node.ssh.host
        sent = SentBundleArgs(settings.bundle, way, address, runner, by_us, node.name, repair)
        made.append(SentBundle(f"{name}-bundle", sent, opts("-bundle")))
    return made
