"""A bundle on its way to the host: all of it checked first, then k3s' files sent."""

import shlex
import sys

import pulumi
from pulumi_command import local

from infra.bundle.manifest import Entry
from infra.bundle.needs import INSTALLER, K3S
from infra.node_environment import node_environment
from infra.runner import Runner
from infra.settings import BundleSettings, Settings

STAGE = "/var/lib/disttrain-bundle"  # on a host that is not this machine


class CheckedBundle(pulumi.ComponentResource):
    """Every byte compared with the manifest, before anything is written anywhere."""

    said: pulumi.Output[str]

    def __init__(
        self, name: str, bundle: BundleSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:CheckedBundle", name, {}, opts)
        command = local.Command(
            f"{name}-verify",
            # another bundle is another checksum, and so a changed input: it is checked again
            create=_bundle("verify", bundle),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, custom_timeouts=pulumi.CustomTimeouts(create="1h", update="1h")
            ),
        )
        self.said = command.stdout
        self.register_outputs({"said": self.said})


class SentBundle(pulumi.ComponentResource):
    """The files of k3s in a folder of root's on a host that is reached over SSH.

    They stay there, so that k3s can be repaired; `destroy` removes them.
    """

    folder: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        bundle: BundleSettings,
        settings: Settings,
        runner: Runner,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:SentBundle", name, {}, opts)
        assert settings.host.ssh is not None
        stage = runner.script(
            f"{name}-stage",
            "bundle-stage.sh",
            {"STAGE": STAGE},
            pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        words = [word for entry in k3s_files(bundle) for word in ("--file", entry.name)]
        local.Command(
            f"{name}-send",
            create=_bundle("send", bundle, "--to", STAGE, *words),
            environment=node_environment(settings),
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[stage],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create="2h", update="2h"),
            ),
        )
        self.folder = pulumi.Output.from_input(STAGE)
        self.register_outputs({"folder": self.folder})


def check_bundle(settings: Settings) -> list[pulumi.Resource]:
    """What everything else waits for, where there is a bundle."""
    return [CheckedBundle("bundle", settings.bundle)] if settings.bundle else []


def send_bundle(
    settings: Settings, runner: Runner, depends_on: list[pulumi.Resource]
) -> list[pulumi.Resource]:
    """What k3s waits for, where there is a bundle and the host is another machine."""
    if not (settings.bundle and settings.host.ssh and settings.cluster.kind == "k3s"):
        return []
    return [SentBundle("bundle-on-host", settings.bundle, settings, runner, depends_on)]


def bundle_variables(settings: Settings) -> dict[str, str]:
    """For k3s-install.sh: where the files lie, and their checksums."""
    bundle = settings.bundle
    if bundle is None:
        return {}
    binary, installer = bundle.one(K3S), bundle.one(INSTALLER)
    assert binary is not None
    assert installer is not None
    return {
        "K3S_BUNDLE": STAGE if settings.host.ssh else str(bundle.path),
        "K3S_SHA256": binary.sha256,
        "K3S_INSTALLER_SHA256": installer.sha256,
        "K3S_IMAGES": "\n".join(f"{entry.sha256} {entry.name}" for entry in bundle.images),
    }


def k3s_files(bundle: BundleSettings) -> list[Entry]:
    """What the host needs for k3s."""
    return [*bundle.manifest.of(K3S), *bundle.manifest.of(INSTALLER), *bundle.images]


def _bundle(action: str, bundle: BundleSettings, *words: str) -> str:
    head = [sys.executable, "-m", "infra.bundle", action, str(bundle.path)]
    return shlex.join([*head, "--sha256", bundle.manifest.sha256, *words])
