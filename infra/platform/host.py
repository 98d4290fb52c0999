"""What happens on the host before the cluster: doctor, guard, trust, a bundle, the data folder."""

from dataclasses import dataclass
from pathlib import PurePosixPath

import pulumi

from infra.dependencies import dependencies
from infra.node.doctor import Doctor, DoctorArgs, up_plan
from infra.node.runner import Runner, Script
from infra.platform.airgap_files import check_bundle, send_bundle
from infra.platform.data_folder import DataFolder, DataFolderArgs
from infra.platform.host_guard import HostGuard, HostGuardArgs
from infra.settings import PlatformSettings


@dataclass(frozen=True)
class HostTrustArgs:
    """Certificates to trust.

    Args:
        certificates: authorities, as PEM text.
        runner: runs scripts on the host.
    """

    certificates: str
    runner: Runner


class HostTrust(pulumi.ComponentResource):
    """The authorities of `caBundle` in the host's trust store, where k3s' containerd finds them."""

    installed: pulumi.Output[str]
    """Output of the script: where the authorities are."""

    def __init__(
        self, name: str, args: HostTrustArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:HostTrust", name, {}, opts)
        command = args.runner.run(
            f"{name}-bundle",
            Script(
                "ca-certificates.sh",
                {"CA_BUNDLE": args.certificates},
                replace_on_another_host=True,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
        )
        self.installed = pulumi.Output.from_input(command.stdout)
        self.register_outputs({"installed": self.installed})


def prepare_host(
    settings: PlatformSettings,
    data_folder: str,
    runner: Runner,
    owner: pulumi.Input[str],
    checked: list[pulumi.Resource],
) -> list[pulumi.Resource]:
    """Register what the cluster waits for, and what `destroy` comes to after the cluster.

    For a cluster that exists this is the data folder alone, if there is one.

    Args:
        settings: of the platform.
        data_folder: the folder of the host that holds the data; empty: there is none.
        runner: runs scripts on the host.
        owner: identifies the platform.
        checked: what comes before anything on the host.
    """
    made: list[pulumi.Resource] = [*checked, *check_bundle(settings)]
    if settings.cluster.kind == "k3s":
        made.append(Doctor("doctor", DoctorArgs(up_plan(settings), settings.doctor)))
        existing = settings.cluster.k3s.existing
        guard = HostGuardArgs(settings.host, settings.namespace, owner, existing)
        made.append(HostGuard("host-guard", guard, _after(made)))
        if settings.proxy.ca_bundle:
            trust = HostTrustArgs(settings.proxy.ca_bundle, runner)
            made.append(HostTrust("trust", trust, _after(made)))
    made += send_bundle(settings, runner, _after(made))
    if not data_folder:
        return made
    folder = DataFolderArgs(PurePosixPath(data_folder), settings.storage.purge, runner)
    return [*made, DataFolder("data-root", folder, _after(made))]


def _after(made: list[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(depends_on=[*made])
