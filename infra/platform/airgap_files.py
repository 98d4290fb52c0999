"""Checks the files of an air-gap bundle, and then sends those of k3s to a host."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_command import local

from infra.airgap.manifest import Entry
from infra.airgap.needs import INSTALLER, K3S
from infra.dependencies import child_options, dependencies
from infra.kube_command import PYTHON
from infra.node.node_environment import node_environment
from infra.node.runner import ALL_INPUTS, Runner, Script
from infra.platform.repair import NO_REPAIR, Repair
from infra.settings import BundleSettings, HostSettings, PlatformSettings

STAGE = "/var/lib/disttrain-bundle"  # The folder on a host that is not this machine.


@dataclass(frozen=True)
class CheckedBundleArgs:
    """The bundle to check."""

    bundle: BundleSettings


class CheckedBundle(pulumi.ComponentResource):
    """Compares every byte of the bundle with its manifest before anything else is done.

    The manifest's checksum is an input of the command, so another bundle is checked again.
    """

    verified: pulumi.Output[str]
    """Output of the check: the number of files, and the checksum of the manifest."""

    def __init__(
        self, name: str, args: CheckedBundleArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:CheckedBundle", name, {}, opts)
        command = local.Command(
            f"{name}-verify",
            create=_bundle_program("verify", args.bundle),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=dependencies(opts),
                custom_timeouts=pulumi.CustomTimeouts(create="1h", update="1h"),
            ),
        )
        self.verified = command.stdout
        self.register_outputs({"verified": self.verified})


@dataclass(frozen=True)
class SentBundleArgs:
    """What is sent, and how.

    Args:
        bundle: the bundle on this machine.
        environment: the variable that says how to reach the host, see `node_environment`.
        host: address of the host. If it changes, the files are removed from the previous host and
            sent to the new one.
        runner: runs scripts on the host.
        whose: variables that name the stack. Files of another stack stay as they are.
        node: the node name of a further machine; empty for the first machine.
        repair: whether the machine has lost the files.
    """

    bundle: BundleSettings
    environment: Mapping[str, pulumi.Input[str]]
    host: str
    runner: Runner
    whose: Mapping[str, pulumi.Input[str]]
    node: str = ""
    repair: Repair = NO_REPAIR


class SentBundle(pulumi.ComponentResource):
    """The files of k3s, in a folder that belongs to root on a host that is reached over SSH.

    They stay there, so that k3s can be repaired with them. `pulumi destroy` removes them.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, args: SentBundleArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:SentBundle", name, {}, opts)
        stage = args.runner.run(
            f"{name}-stage",
            Script(
                "bundle-stage.sh",
                {
                    "STAGE": STAGE,
                    **args.whose,
                    **({"NODE": args.node} if args.node else {}),
                    **args.repair.variables,
                },
                replace_on_another_host=True,
                begun=True,
                ignore_changes=args.repair.ignored("stdin"),
            ),
            child_options(self, opts),
        )
        names = [word for entry in k3s_files(args.bundle) for word in ("--file", entry.name)]
        ignored = ALL_INPUTS if args.runner.host_is_lost else args.repair.ignored("triggers")
        local.Command(
            f"{name}-send",
            create=_bundle_program("send", args.bundle, "--to", STAGE, *names),
            environment=args.environment,
            triggers=[args.host, *args.repair.variables.values()],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[stage],
                delete_before_replace=True,
                ignore_changes=[*ignored] or None,
                custom_timeouts=pulumi.CustomTimeouts(create="2h", update="2h"),
            ),
        )
        self.folder = pulumi.Output.from_input(STAGE)
        self.register_outputs({"folder": self.folder})


def check_bundle(settings: PlatformSettings) -> list[pulumi.Resource]:
    """Register the check of the bundle, for which everything else waits; empty without a bundle."""
    bundle = settings.bundle
    return [CheckedBundle("bundle", CheckedBundleArgs(bundle))] if bundle else []


def send_bundle(
    settings: PlatformSettings,
    runner: Runner,
    whose: Mapping[str, pulumi.Input[str]],
    repair: Repair,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Register the sending of the bundle, for which k3s waits.

    The list is empty without a bundle, if the host is this machine, or if k3s is adopted: an
    adopted k3s is not installed, so it needs no files.
    """
    bundle, ssh = settings.bundle, settings.host.ssh
    if not (bundle and ssh and settings.cluster.installs_k3s):
        return []
    way = node_environment(settings)
    args = SentBundleArgs(bundle, way, ssh.host, runner, whose, repair=repair)
    return [SentBundle("bundle-on-host", args, opts)]


def bundle_variables(bundle: BundleSettings | None, host: HostSettings) -> dict[str, str]:
    """Variables of k3s-install.sh: the folder with the bundle's files, and their checksums."""
    if bundle is None:
        return {}
    binary, installer = bundle.one(K3S), bundle.one(INSTALLER)
    assert binary is not None
    assert installer is not None
    return {
        "K3S_BUNDLE": STAGE if host.ssh else str(bundle.path),
        "K3S_SHA256": binary.sha256,
        "K3S_INSTALLER_SHA256": installer.sha256,
        "K3S_IMAGES": "\n".join(f"{entry.sha256} {entry.name}" for entry in bundle.images),
    }


def k3s_files(bundle: BundleSettings) -> list[Entry]:
    """The files of the bundle from which a host installs k3s."""
    return [*bundle.manifest.of(K3S), *bundle.manifest.of(INSTALLER), *bundle.images]


def _bundle_program(action: str, bundle: BundleSettings, *words: str) -> str:
    """The command line of infra.airgap.

    Commands run in the project's folder, so the path of Python is relative to that folder.
    """
    head = [PYTHON, "-m", "infra.airgap", action, str(bundle.path)]
    return shlex.join([*head, "--sha256", bundle.manifest.sha256, *words])
