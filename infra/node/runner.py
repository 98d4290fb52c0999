"""Registers commands that run the scripts of infra/node/scripts, on this machine or over SSH."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pulumi
from pulumi_command import local, remote

from infra.kube_command import PYTHON
from infra.node.shell_program import Privilege, assemble_program, script_text
from infra.settings import HostSettings, SshSettings
from infra.settings.secret import Secret

HostCommand: TypeAlias = "local.Command | remote.Command"
Text: TypeAlias = "pulumi.Input[str]"

ON_HOST = f"{PYTHON} -m infra.node.on_host"
# While the engine ignores changes of all these inputs, a command in the state never runs again.
ALL_INPUTS = ("connection", "create", "delete", "environment", "stdin", "triggers", "update")
DIAL_ATTEMPTS = 10
SECONDS_PER_DIAL = 15
CREATE = "sh -s -- create"
NOTHING = "cat >/dev/null"  # It reads its input: SSH fails if a command ends before it has.


@dataclass(frozen=True)
class Script:
    """A script of infra/node/scripts, and how it is run.

    Args:
        file: name of the script.
        variables: the environment of the script.
        as_root: whether the script runs as root, by sudo if needed.
        secret_output: whether the output is a secret. Then it is encrypted in the state and shown
            nowhere.
        replace_when: texts. If one of them changes, the command is replaced: the script's `delete`
            runs, and then its `create`. Any other change runs the `create` again, or the `update`.
        replace_on_another_host: whether the command is also replaced when the host changes. The
            `delete` then runs on the old host, with the connection in the state.
        replace_after: whether, when the command is replaced, the `create` comes first and the
            `delete` last of all, when the previous machine does not need the thing any more. Both
            may be the same host. So the `delete` has to notice if a later `create` on that host has
            taken over what it would remove.
        update: whether the script has its own action `update`. Without it, a change runs `create`.
        begun: whether another command is registered first, whose `create` does nothing, and whose
            `delete` is that of the script. If an `up` is killed during the script's `create`, the
            state does not contain the script's command, and `pulumi destroy` finds only that one.
            The script's `delete` has to do nothing where nothing is left.
        begun_variables: variables that this other command gets in place of those in `variables`.
        ignore_changes: inputs whose changes have no effect, as in ResourceOptions.
    """

    file: str
    variables: Mapping[str, Text] = field(default_factory=dict[str, Text])
    as_root: bool = True
    secret_output: bool = False
    replace_when: Sequence[Text] = ()
    replace_on_another_host: bool = False
    replace_after: bool = False
    update: bool = False
    begun: bool = False
    begun_variables: Mapping[str, Text] = field(default_factory=dict[str, Text])
    ignore_changes: Sequence[str] = ()


class Runner(ABC):
    """Makes Command resources, which run a script's `create` and, when they are deleted, `delete`.

    The script and its variables go to the shell by standard input. So nothing of them is on a
    command line, and a change of either runs the script again.

    Args:
        host_is_lost: whether the user has marked the host as lost. Then nothing runs there.
    """

    def __init__(self, *, host_is_lost: bool = False) -> None:
        self.host_is_lost = host_is_lost

    def run(self, name: str, script: Script, opts: pulumi.ResourceOptions) -> HostCommand:
        """Register a command with this name that runs the script."""
        if script.begun:
            # Another host only changes this command. Its `delete` would run last of all, and may
            # lead, by another address, to the machine on which the script has just run.
            first = replace(
                script,
                variables={**script.variables, **script.begun_variables},
                replace_when=(),
                replace_on_another_host=False,
                update=False,
            )
            own = copy(opts)
            own.aliases = None  # They are those of the script's command.
            begun = self._register(f"{name}-begun", first, own, NOTHING)
            opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[begun]))
        return self._register(name, script, opts, CREATE)

    @abstractmethod
    def _register(
        self, name: str, script: Script, opts: pulumi.ResourceOptions, create: str
    ) -> HostCommand:
        """Register one command.

        Args:
            name: name of the resource.
            script: the script.
            opts: parent and dependencies.
            create: CREATE or NOTHING.
        """


class LocalRunner(Runner):
    """Runs scripts on this machine."""

    def __init__(self, sudo_password: Secret | None = None, *, host_is_lost: bool = False) -> None:
        super().__init__(host_is_lost=host_is_lost)
        self._sudo_password = sudo_password

    def _register(
        self, name: str, script: Script, opts: pulumi.ResourceOptions, create: str
    ) -> HostCommand:
        return local.Command(
            name,
            create=create,
            update="sh -s -- update" if script.update else None,
            delete="sh -s -- delete",
            stdin=program_text(script, self._sudo_password),
            triggers=_triggers(script, "localhost"),
            logging=local.Logging.NONE if script.secret_output else local.Logging.STDOUT_AND_STDERR,
            add_previous_output_in_env=False,
            opts=_options(opts, script, self.host_is_lost),
        )


class SshRunner(Runner):
    """Runs scripts on a host that is reached over SSH, and whose host key is pinned."""

    def __init__(
        self, ssh: SshSettings, sudo_password: Secret | None, *, host_is_lost: bool = False
    ) -> None:
        super().__init__(host_is_lost=host_is_lost)
        self._sudo_password = sudo_password
        self._host = ssh.host
        self._connection = remote.ConnectionArgs(
            host=ssh.host,
            port=float(ssh.port),
            user=ssh.user,
            host_key=ssh.host_key,
            private_key=ssh.private_key.output if ssh.private_key else None,
            dial_error_limit=DIAL_ATTEMPTS,
            per_dial_timeout=SECONDS_PER_DIAL,
            proxy=_jump(ssh),
        )

    def _register(
        self, name: str, script: Script, opts: pulumi.ResourceOptions, create: str
    ) -> HostCommand:
        logging = remote.Logging
        return remote.Command(
            name,
            connection=self._connection,
            create=create,
            update="sh -s -- update" if script.update else None,
            delete="sh -s -- delete",
            stdin=program_text(script, self._sudo_password),
            triggers=_triggers(script, self._host),
            logging=logging.NONE if script.secret_output else logging.STDOUT_AND_STDERR,
            add_previous_output_in_env=False,
            opts=_options(opts, script, self.host_is_lost),
        )


class EitherWayRunner(Runner):
    """Runs scripts on this machine or over SSH, with one type of command for both.

    The command is a program on this machine, which reaches the host itself (infra/node/on_host.py
    says why). So if the setting `host` changes, the engine changes or replaces this command. It
    does not make a new one beside the old one, which it would delete last of all.
    """

    def __init__(self, host: HostSettings) -> None:
        super().__init__(host_is_lost=host.gone)
        self._host = host

    def _register(
        self, name: str, script: Script, opts: pulumi.ResourceOptions, create: str
    ) -> HostCommand:
        # The `delete` uses the connection in the state.
        return local.Command(
            name,
            create=create if create == NOTHING else f"{ON_HOST} create",
            update=f"{ON_HOST} update" if script.update else None,
            delete=f"{ON_HOST} delete",
            stdin=on_host_job(self._host, script),
            triggers=_triggers(script, self._host.address),
            logging=local.Logging.NONE if script.secret_output else local.Logging.STDOUT_AND_STDERR,
            add_previous_output_in_env=False,
            opts=_options(opts, script, self.host_is_lost),
        )


def on_host_job(host: HostSettings, script: Script) -> pulumi.Output[str]:
    """Build the standard input of infra.node.on_host for a script on the host.

    It is a secret output, because it holds the SSH key and sudo's password.
    """
    ssh, program = host.ssh, program_text(script, host.sudo_password)
    job = {"ssh": ssh.ssh_spec() if ssh else None, "program": program}
    return pulumi.Output.secret(pulumi.Output.json_dumps(job))


def host_runner(host: HostSettings) -> Runner:
    """Choose the runner for a host: LocalRunner for this machine, else SshRunner."""
    if host.ssh is None:
        return LocalRunner(host.sudo_password, host_is_lost=host.gone)
    return SshRunner(host.ssh, host.sudo_password, host_is_lost=host.gone)


def _jump(ssh: SshSettings) -> remote.ProxyConnectionArgs | None:
    if ssh.jump is None:
        return None
    return remote.ProxyConnectionArgs(
        host=ssh.jump.host,
        port=float(ssh.jump.port),
        user=ssh.jump.user,
        host_key=ssh.jump.host_key,
        private_key=ssh.private_key.output if ssh.private_key else None,
        dial_error_limit=DIAL_ATTEMPTS,
        per_dial_timeout=SECONDS_PER_DIAL,
    )


def _triggers(script: Script, host: str) -> list[Text] | None:
    """The texts whose change replaces the command."""
    return [*([host] if script.replace_on_another_host else []), *script.replace_when] or None


def _options(
    opts: pulumi.ResourceOptions, script: Script, host_is_lost: bool
) -> pulumi.ResourceOptions:
    ours = pulumi.ResourceOptions(
        delete_before_replace=not script.replace_after,
        # Nothing can be done or removed on a lost host. So no change of the inputs runs the
        # command, and in the end the engine only forgets it.
        retain_on_delete=host_is_lost or None,
        additional_secret_outputs=["stdout", "stderr"] if script.secret_output else None,
        ignore_changes=[*(ALL_INPUTS if host_is_lost else script.ignore_changes)] or None,
    )
    return pulumi.ResourceOptions.merge(opts, ours)


def program_text(script: Script, sudo_password: Secret | None) -> pulumi.Output[str]:
    """Build the text for `sh -s`: the script with its variables, run as root if it needs that."""
    text = script_text(script.file)
    privilege: Privilege = "root" if script.as_root else "user"
    names = list(script.variables)
    asks = sudo_password and script.as_root
    password = sudo_password.output if sudo_password and asks else pulumi.Output.from_input("")
    values = [pulumi.Output.from_input(script.variables[name]) for name in names]

    def assemble(resolved: Sequence[str]) -> str:
        given = dict(zip(names, resolved[1:], strict=True))
        return assemble_program(text, given, privilege, resolved[0])

    return pulumi.Output.all(password, *values).apply(assemble)
