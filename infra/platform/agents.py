"""Further machines: each joins, as an agent or a server, the k3s that this stack has installed."""

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
    """What one machine gets.

    Args:
        node: the machine.
        server: the host of the server.
        server_url: address of the server, as the machine reaches it.
        variables: for the script on the machine, beside those of this machine.
        grace_seconds: how long pods may take to end.
        generation: another text when the server's cluster has become another one.
        look: what was found on the machine; None: it is gone.
        examined: what k3s' files on the machine wait for, and so do all further steps.
        servers: what it joins, and so waits for; the component itself waits for nothing.
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
    """One command brings k3s' files to the machine, while the first machine is being installed; the
    other one joins it, and its `delete` takes it out of the cluster again.

    An `up` that fails or is killed while one of them runs leaves that one out of the state. So a
    mark comes before them, which does nothing, and whose `delete` comes after theirs: it takes away
    what is left on the machine. Each address and role has a mark of its own: see `of_machine`.

    They are commands of this machine, as one of them has to talk to two hosts: infra/node/agent.py
    says why.
    With another address, k3s is removed from the machine of before. When the server has another
    cluster than before, the machine leaves the old one and joins the new one, and with another role
    it leaves in the one and joins in the other.
    """

    joined: pulumi.Output[str]
    """What the command printed when it last ran."""

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
            # It holds SSH keys and passwords of sudo, and not the token.
            stdin=pulumi.Output.secret(pulumi.Output.json_dumps(job)),
            triggers=[*triggers],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions.merge(ours, opts),
        )


def _role(node: NodeSettings) -> list[str]:
    """The text that changes with another role.

    An agent has none: once there was no other role, and the commands of those agents must not run
    again.
    """
    return [node.role] if node.is_server else []


def _job(args: AgentArgs) -> dict[str, pulumi.Input[object]]:
    """Standard input of infra.node.agent."""
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
    """The job for k3s' files alone, which neither a repair nor other labels or taints change."""
    return {
        **_job(args),
        "server": {"gone": args.server.gone},
        "variables": {"agent": _file_variables(args)},
    }


def _mark_job(args: AgentArgs) -> dict[str, pulumi.Input[object]]:
    """The same, with what the steps at the server need, of a machine that leaves."""
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
    """A preview that cannot ask a machine shows it as it is in the state, and says so."""
    if not (args.look and args.look.problem):
        return None
    if not pulumi.runtime.is_dry_run():
        pulumi.log.warn(not_asked(args.node.ssh.host, args.look.problem))
        return None
    pulumi.log.warn(not_shown(args.node.ssh.host, args.look.problem))
    return ["stdin"]


def start_looks(settings: PlatformSettings) -> Looks:
    """Begin to ask every further machine about its k3s, all at once, beside the program."""
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


def make_agents(
    settings: PlatformSettings,
    looks: Looks,
    owner: pulumi.Input[str],
    generation: pulumi.Input[str],
    server: pulumi.Resource,
    nfs: NfsServer | None = None,
) -> list[pulumi.Resource]:
    """Register all machines. All wait for the first one, and may mount what `nfs` serves.

    Servers join one after the other, as etcd takes no more than one new member at a time, and leave
    in the reverse order. Agents wait for all servers, and not for each other.

    Raises:
        pulumi.RunError: two of them are one machine; or the first one is lost, and another one does
            not answer either.
    """
    found = {name: look.result() for name, look in looks.items()}
    check_apart(settings.nodes, found)
    if settings.host.gone:
        check_answers(settings.nodes, found)
        looks = {}  # there is no cluster for which anything could be repaired
    made: list[pulumi.Resource] = []
    # A server that is lost comes first, which takes it out of etcd: beside it etcd takes no new
    # member.
    for node in sorted(servers(settings), key=lambda node: not node.host.gone):
        made.append(_make(settings, node, looks, owner, generation, [server, *made[-1:]], nfs))
    agents = [node for node in settings.nodes if not node.is_server]
    first = [server, *made]
    made += [_make(settings, node, looks, owner, generation, first, nfs) for node in agents]
    return made


def servers(settings: PlatformSettings) -> list[NodeSettings]:
    """The further machines that are servers, in the order of the list."""
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
    """A machine with its doctor; it is examined while the first machine is being installed."""
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
    """Options for a machine whose name in the settings is not the one that it has in the cluster.

    Without them the engine would see two machines: a new one, which joins first, and a former one,
    which leaves last. One machine cannot do that. With the alias it stays the same resource, leaves
    before it joins, and keeps what else was brought to it. `end` is the end of the resource's name.
    """
    before = look.node if look else ""
    if not before or before in (node.name for node in settings.nodes):
        return None
    return pulumi.ResourceOptions(aliases=[pulumi.Alias(name=f"node-{before}{end}")])


def _variables(settings: PlatformSettings, node: NodeSettings) -> Mapping[str, pulumi.Input[str]]:
    """Variables for k3s on the machine, which name the machines that it reaches without a proxy.

    The API server of a server asks the kubelets of all machines. An agent does not speak to the
    other machines, so its variables name its own address alone: then a machine that is added
    changes nothing for it, and its k3s is not restarted.
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
    """The authorities and the files of a bundle, as the first machine has them."""
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
