"""Runs the scripts of infra/scripts on the host: here, or over SSH, with the same arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias

import pulumi
from pulumi_command import local, remote

from infra.secret import Secret
from infra.settings import HostSettings, SshSettings
from infra.shell_program import assemble_program

SCRIPTS = Path(__file__).parent / "scripts"

HostCommand: TypeAlias = "local.Command | remote.Command"


class Runner(Protocol):
    """Makes Command resources that run a script with `create` and, when it goes, `delete`.

    The script and its variables go by standard input: nothing of them is on a command line, and
    a change of either runs the script's `create` again.
    """

    def script(
        self,
        name: str,
        script: str,
        variables: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        *,
        as_root: bool = True,
        quiet: bool = False,
    ) -> HostCommand:
        """Register the command `name` for `infra/scripts/<script>`.

        Args:
            name: name of the resource.
            script: file name.
            variables: environment of the script.
            opts: parent, dependencies.
            as_root: run it as root, by sudo where needed.
            quiet: its output is a secret and is shown nowhere.
        """
        ...

    def copy_file(
        self, name: str, source: Path, target: str, opts: pulumi.ResourceOptions
    ) -> HostCommand:
        """Put a file of this machine at `target` on the host; removed when the resource goes."""
        ...


class LocalRunner:
    """The host is this machine."""

    def __init__(self, sudo_password: Secret | None = None, *, gone: bool = False) -> None:
        self._sudo_password = sudo_password
        self._gone = gone

    def script(
        self,
        name: str,
        script: str,
        variables: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        *,
        as_root: bool = True,
        quiet: bool = False,
    ) -> HostCommand:
        """See Runner."""
        return local.Command(
            name,
            create="sh -s -- create",
            delete="sh -s -- delete",
            stdin=_program(script, variables, as_root, self._sudo_password),
            logging=local.Logging.NONE if quiet else local.Logging.STDOUT_AND_STDERR,
            add_previous_output_in_env=False,
            opts=_options(opts, quiet, self._gone),
        )

    def copy_file(
        self, name: str, source: Path, target: str, opts: pulumi.ResourceOptions
    ) -> HostCommand:
        """See Runner."""
        variables = {"SOURCE": str(source), "TARGET": target}
        return self.script(name, "dataset-file.sh", variables, opts)


class SshRunner:
    """The host is reached over SSH; its key is pinned."""

    def __init__(
        self, ssh: SshSettings, sudo_password: Secret | None, *, gone: bool = False
    ) -> None:
        self._sudo_password = sudo_password
        self._gone = gone
        self._user = ssh.user
        self._connection = remote.ConnectionArgs(
            host=ssh.host,
            port=float(ssh.port),
            user=ssh.user,
            host_key=ssh.host_key,
            private_key=ssh.private_key.output if ssh.private_key else None,
            dial_error_limit=10,
            per_dial_timeout=15,
            proxy=_jump(ssh),
        )

    def script(
        self,
        name: str,
        script: str,
        variables: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
        *,
        as_root: bool = True,
        quiet: bool = False,
    ) -> HostCommand:
        """See Runner."""
        return remote.Command(
            name,
            connection=self._connection,
            create="sh -s -- create",
            delete="sh -s -- delete",
            stdin=_program(script, variables, as_root, self._sudo_password),
            logging=remote.Logging.NONE if quiet else remote.Logging.STDOUT_AND_STDERR,
            add_previous_output_in_env=False,
            opts=_options(opts, quiet, self._gone),
        )

    def copy_file(
        self, name: str, source: Path, target: str, opts: pulumi.ResourceOptions
    ) -> HostCommand:
        """See Runner. The file goes by way of /tmp: the user may not write below the data root."""
        transfer = f"/tmp/disttrain-{self._user}-{PurePosixPath(target).name}"
        copy = remote.CopyToRemote(
            f"{name}-transfer",
            connection=self._connection,
            source=pulumi.FileAsset(str(source)),
            remote_path=transfer,
            opts=opts,
        )
        variables = {"SOURCE": transfer, "TARGET": target, "TRANSFERRED": "true"}
        after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[copy]))
        return self.script(name, "dataset-file.sh", variables, after)


def host_runner(host: HostSettings) -> Runner:
    """The runner for where the node is."""
    if host.ssh is None:
        return LocalRunner(host.sudo_password, gone=host.gone)
    return SshRunner(host.ssh, host.sudo_password, gone=host.gone)


def _jump(ssh: SshSettings) -> remote.ProxyConnectionArgs | None:
    if ssh.jump is None:
        return None
    return remote.ProxyConnectionArgs(
        host=ssh.jump.host,
        port=float(ssh.jump.port),
        user=ssh.jump.user,
        host_key=ssh.jump.host_key,
        private_key=ssh.private_key.output if ssh.private_key else None,
        dial_error_limit=10,
        per_dial_timeout=15,
    )


def _options(
    opts: pulumi.ResourceOptions, quiet: bool, host_is_gone: bool
) -> pulumi.ResourceOptions:
    ours = pulumi.ResourceOptions(
        delete_before_replace=True,
        retain_on_delete=host_is_gone or None,  # forgotten, as nothing can be removed there
        additional_secret_outputs=["stdout", "stderr"] if quiet else None,
    )
    return pulumi.ResourceOptions.merge(opts, ours)


def _program(
    script: str,
    variables: Mapping[str, pulumi.Input[str]],
    as_root: bool,
    sudo_password: Secret | None,
) -> pulumi.Output[str]:
    """The text for `sh -s`: the script with its variables set, wrapped if it needs root."""
    text = (SCRIPTS / script).read_text()
    wrapper = (SCRIPTS / "as-root.sh").read_text() if as_root else None
    names = list(variables)
    password = sudo_password.output if sudo_password and as_root else pulumi.Output.from_input("")
    values = [pulumi.Output.from_input(variables[name]) for name in names]

    def assemble(resolved: Sequence[str]) -> str:
        given = dict(zip(names, resolved[1:], strict=True))
        return assemble_program(text, given, wrapper, resolved[0])

    return pulumi.Output.all(password, *values).apply(assemble)
