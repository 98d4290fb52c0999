"""A further machine, which joins the k3s that this stack has installed on the first machine.

It is an agent or a server of k3s. An agent only runs pods. A server also keeps a copy of the
cluster's data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_command import local

from infra.kube_command import PYTHON
from infra.node.agent import scripts
from infra.node.k3s_observation import K3sObservation
from infra.platform.guards import LONGEST_SAVE_SECONDS
from infra.platform.k3s_state import not_asked, not_shown
from infra.platform.of_machine import of_machine
from infra.settings import HostSettings, NodeSettings

STEPS = f"{PYTHON} -m infra.node.agent"


@dataclass(frozen=True)
class FurtherMachineArgs:
    """What one further machine needs to join.

    Args:
        node: the settings of the machine.
        first_machine: the host with the k3s that the machine joins.
        server_url: URL of the first machine's API server, as the further machine reaches it.
        variables: variables of the script that runs on the machine; `_file_variables` adds those
            that only this machine has.
        grace_seconds: how many seconds pods may take to end.
        generation: a text that changes when the first machine's k3s has become another cluster.
        observation: what was found on the machine; None: the user has marked it as lost.
        begins_after: resources that come before all commands of the machine.
        joins_after: further resources that have to be there before the machine joins, such as the
            k3s of the first machine and the servers before this one. Bringing k3s' files to the
            machine does not wait for them.
    """

    node: NodeSettings
    first_machine: HostSettings
    server_url: str
    variables: Mapping[str, pulumi.Input[str]] = field(repr=False)
    grace_seconds: int
    generation: pulumi.Input[str]
    observation: K3sObservation | None
    begins_after: Sequence[pulumi.Resource]
    joins_after: Sequence[pulumi.Resource]


class FurtherMachine(pulumi.ComponentResource):
    """The commands that bring k3s to a further machine, and that let the machine join and leave.

    The command `files` brings k3s' files to the machine while the first machine is still being
    installed. The command `k3s` joins the machine to the cluster, and its `delete` takes the
    machine out of the cluster again.

    If an `up` fails or is killed while one of these two commands runs, the state does not contain
    that command, and no `delete` would clean up after it. So a third command, called `begun`, is
    registered first. Its `create` does nothing. Its `delete` runs after those of the other two and
    removes what is left on the machine. Each address and role has such a command of its own: see
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
        self, name: str, args: FurtherMachineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        # The state of each stack has this type, so it stays, although the machine may be a server.
        super().__init__("disttrain:infra:Agent", name, {}, opts)
        node, ignored = args.node, _ignored(args)
        machine = [node.ssh.host, *_role(node)]
        of_the_machine = [node.name, *machine]
        begun = self._command(
            of_machine(f"{name}-begun", *machine),
            ("sh -c true", f"{STEPS} clear"),
            _begun_job(args),
            of_the_machine,
            pulumi.ResourceOptions(
                depends_on=[*args.begins_after],
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
            pulumi.ResourceOptions(depends_on=[*args.begins_after, begun], ignore_changes=ignored),
        )
        command = self._command(
            f"{name}-k3s",
            (f"{STEPS} create", f"{STEPS} delete"),
            _job(args),
            [node.name, node.ssh.host, args.generation, *_role(node)],
            pulumi.ResourceOptions(depends_on=[*args.joins_after, files], ignore_changes=ignored),
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
            custom_timeouts=pulumi.CustomTimeouts(
                create="25m", update="25m", delete=f"{LONGEST_SAVE_SECONDS}s"
            ),
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


def _job(args: FurtherMachineArgs) -> dict[str, pulumi.Input[object]]:
    """The standard input of infra.node.agent for the command `k3s`."""
    node = args.node
    taints = {"TAINTS": "\n".join(node.taints)}
    role = {"ROLE": node.role} if node.is_server else {}
    repair = args.observation.repair_id if args.observation else ""
    agent = {**_file_variables(args), **taints, "REPAIR_ID": repair}
    member = {
        **taints,
        **role,
        "NODE": node.name,
        "LABELS": "\n".join(f"{key}={value}" for key, value in sorted(node.labels.items())),
        "GRACE_SECONDS": str(args.grace_seconds),
    }
    return {
        "server": {**args.first_machine.access_fields(), "gone": args.first_machine.gone},
        "machine": {**node.host.access_fields(), "gone": node.host.gone},
        "scripts": scripts(node.role),
        "variables": {"agent": agent, "look": role, "member": member},
        **({"role": node.role} if node.is_server else {}),
    }


def _files_job(args: FurtherMachineArgs) -> dict[str, pulumi.Input[object]]:
    """The job of the command `files`. A repair, other labels or other taints do not change it."""
    return {
        **_job(args),
        "server": {"gone": args.first_machine.gone},
        "variables": {"agent": _file_variables(args)},
    }


def _begun_job(args: FurtherMachineArgs) -> dict[str, pulumi.Input[object]]:
    """The job of the command `begun`.

    It also holds what the steps on the first machine need when the machine leaves the cluster."""
    node = args.node
    role = {"ROLE": node.role} if node.is_server else {}
    member = {**role, "NODE": node.name, "GRACE_SECONDS": str(args.grace_seconds)}
    return {**_job(args), "variables": {"agent": _file_variables(args), "member": member}}


def _file_variables(args: FurtherMachineArgs) -> Mapping[str, pulumi.Input[str]]:
    node = args.node
    own = {
        "NODE": node.name,
        "HOST": node.ssh.host,
        "NODE_INTERFACE": node.interface,
        "SERVER_URL": args.server_url,
    }
    return {**args.variables, **own}


def _ignored(args: FurtherMachineArgs) -> list[str] | None:
    """Inputs whose changes the engine ignores; None: it ignores none.

    If the machine could not be asked about its k3s, a preview shows its commands as they are in the
    state, and warns about that. An `up` runs the commands again.
    """
    if not (args.observation and args.observation.problem):
        return None
    if not pulumi.runtime.is_dry_run():
        pulumi.log.warn(not_asked(args.node.ssh.host, args.observation.problem))
        return None
    pulumi.log.warn(not_shown(args.node.ssh.host, args.observation.problem))
    return ["stdin"]
