"""Prepares the first machine for the cluster: doctor, guard, authorities, bundle, data folder."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.node.doctor import Doctor, DoctorArgs, up_plan
from infra.node.runner import Runner, Script
from infra.platform.airgap_files import check_bundle, send_bundle
from infra.platform.data_folder import DataFolder, DataFolderArgs
from infra.platform.host_guard import HostGuard, HostGuardArgs
from infra.platform.nfs_server import NfsServer, NfsServerArgs
from infra.platform.owner import whose
from infra.platform.repair import NO_REPAIR, Repair
from infra.platform.stack_name import shown_stack_name
from infra.settings import PlatformSettings
from infra.storages.kind import Storage


@dataclass(frozen=True)
class HostTrustArgs:
    """Certificates to trust.

    Args:
        certificates: the certificates of the authorities, as PEM text.
        runner: runs scripts on the host.
        whose: variables that name the stack. Certificates of another stack stay as they are.
        node: the node name of a further machine; empty for the first machine.
        repair: whether the machine has lost the certificates.
    """

    certificates: str
    runner: Runner
    whose: Mapping[str, pulumi.Input[str]]
    node: str = ""
    repair: Repair = NO_REPAIR


class HostTrust(pulumi.ComponentResource):
    """Adds the authorities of `caBundle` to the host's trust store, which k3s' containerd reads."""

    installed: pulumi.Output[str]
    """Output of the script: the file with the authorities."""

    def __init__(
        self, name: str, args: HostTrustArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:HostTrust", name, {}, opts)
        command = args.runner.run(
            f"{name}-bundle",
            Script(
                "ca-certificates.sh",
                {
                    "CA_BUNDLE": args.certificates,
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
        self.installed = pulumi.Output.from_input(command.stdout)
        self.register_outputs({"installed": self.installed})


@dataclass(frozen=True)
class PreparedHost:
    """What was registered for the first machine before the cluster.

    Args:
        made: the resources that the cluster waits for. `pulumi destroy` deletes them after the
            cluster.
        nfs: the NFS server of the data; None if the storage needs none.
    """

    made: list[pulumi.Resource]
    nfs: NfsServer | None = None


def prepare_host(
    settings: PlatformSettings,
    storage: Storage,
    runner: Runner,
    owner: pulumi.Input[str],
    checked: list[pulumi.Resource],
    repair: Repair,
) -> PreparedHost:
    """Register what comes before the cluster.

    For an existing cluster these are the check of the bundle and the data folder, if there are any.

    Args:
        settings: the settings of the platform.
        storage: says which folder of the host holds the data, if one does, and whether the other
            machines mount it.
        runner: runs scripts on the host.
        owner: identifies the platform.
        checked: resources that come before anything is done on the host.
        repair: whether the host has lost what an earlier `up` has made there.
    """
    by_us = whose(owner, settings.stack)
    made: list[pulumi.Resource] = [*checked, *check_bundle(settings)]
    if settings.cluster.kind == "k3s":
        if not settings.host.gone:
            made.append(Doctor("doctor", DoctorArgs(up_plan(settings), settings.doctor)))
        existing = settings.cluster.k3s.existing
        guard = HostGuardArgs(settings.host, settings.namespace, owner, existing)
        made.append(HostGuard("host-guard", guard, _after(made)))
        if settings.proxy.ca_bundle:
            trust = HostTrustArgs(settings.proxy.ca_bundle, runner, by_us, repair=repair)
            made.append(HostTrust("trust", trust, _after(made)))
    made += send_bundle(settings, runner, by_us, repair, _after(made))
    if has_data_folder(settings, storage):
        purge = settings.storage.purge
        folder = DataFolderArgs(storage.folder_on_host, purge, settings.host, by_us, repair)
        made.append(DataFolder("data-root", folder, _after(made)))
    if not storage.served_at:
        return PreparedHost(made)
    serve = NfsServerArgs(
        folder=storage.folder_on_host,
        address=storage.served_at,
        owner=owner,
        stack=shown_stack_name(settings.stack),
        proxy=settings.proxy,
        host=settings.host.address,
        runner=runner,
        repair=repair,
    )
    nfs = NfsServer("nfs", serve, _after(made))
    return PreparedHost([*made, nfs], nfs)


def has_data_folder(settings: PlatformSettings, storage: Storage) -> bool:
    """Whether the command of the data folder is registered.

    On machines with a k3s it is registered even if the data are not in a folder (see DataFolder).
    An existing cluster needs it only if the data are in a folder of this machine.
    """
    return bool(storage.folder_on_host) or settings.cluster.kind == "k3s"


def _after(made: list[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(depends_on=[*made])
