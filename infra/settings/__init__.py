"""Reads all settings of a stack and checks them, also against each other.

Each section of the settings has a file of its own in this folder. All problems are collected and
raised as one error, before any resource is registered.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi

from infra.settings.airgap import (
    BundleSettings,
    check_bundle_for_platform,
    check_bundle_for_run,
    read_bundle,
)
from infra.settings.auto import AUTO, with_choices_made
from infra.settings.cluster import ClusterSettings
from infra.settings.cluster_k3s import K3sSettings
from infra.settings.compute import ComputeSettings
from infra.settings.dataset_file import DatasetFile
from infra.settings.devices import Devices
from infra.settings.extensions import import_extensions
from infra.settings.gpu import GpuOperatorSettings
from infra.settings.gpu_models import check_gpu_model
from infra.settings.image import ImageSettings
from infra.settings.kinds import Kinds
from infra.settings.limits import LimitSettings, read_limits
from infra.settings.load import read_configuration
from infra.settings.node import HostSettings, JumpSettings, SshSettings
from infra.settings.nodes import NodeSettings
from infra.settings.platform import PlatformSettings, read_platform
from infra.settings.platform_for_runs import PlatformForRuns
from infra.settings.pods_demands import check_user, read_demands
from infra.settings.project import PROJECT_ROOT, declared_defaults
from infra.settings.proxy import ProxySettings
from infra.settings.queues import check_own_run
from infra.settings.queues_devices import check_own_devices
from infra.settings.reader import Reader, as_written
from infra.settings.run import RunSettings, read_run
from infra.settings.run_settings import keys_of_run
from infra.settings.secret import MAY_HOLD_SECRETS
from infra.settings.stack_name import check_stack_name
from infra.settings.storage import StorageSettings
from infra.settings.times import check_times

__all__ = [
    "PROJECT_ROOT",
    "BundleSettings",
    "ClusterSettings",
    "ComputeSettings",
    "DatasetFile",
    "Devices",
    "GpuOperatorSettings",
    "HostSettings",
    "ImageSettings",
    "JumpSettings",
    "K3sSettings",
    "LimitSettings",
    "NodeSettings",
    "PlatformForRuns",
    "PlatformSettings",
    "ProxySettings",
    "RunSettings",
    "Settings",
    "SshSettings",
    "StorageSettings",
    "parse_settings",
    "read_configuration",
    "read_settings",
]

PLATFORM_ONLY = "none"  # the value of `topology` for a stack that makes a platform and no run


@dataclass(frozen=True)
class Settings:
    """Everything that a stack's configuration says.

    Args:
        stack: name of the stack.
        platform_stack: name of the stack that owns the platform; empty if it is this stack.
        platform: settings of the platform; None if another stack owns it.
        run: settings of the run; None if this stack makes only a platform.
    """

    stack: str
    platform_stack: str
    platform: PlatformSettings | None
    run: RunSettings | None

    @property
    def own_platform(self) -> PlatformSettings:
        """The settings of the platform that this stack owns.

        Raises:
            pulumi.RunError: another stack owns the platform.
        """
        if self.platform is None:
            raise pulumi.RunError(
                f"platform: {self.platform_stack!r} owns the platform of stack {self.stack!r}; "
                f"ask about that stack instead: --stack {self.platform_stack}"
            )
        return self.platform


def parse_settings(
    raw: Mapping[str, str],
    secret_keys: Iterable[str],
    stack: str,
    kinds: Kinds,
    other_platform: PlatformForRuns | None = None,
    unused_keys: Iterable[str] = (),
) -> Settings:
    """Check the raw values of a stack, and read the files that they name.

    Such files are the preset, the kubeconfig and the file of the data set.

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        secret_keys: the keys whose values are encrypted in the stack's file.
        stack: name of the stack.
        kinds: the registries of kinds.
        other_platform: the platform, if another stack owns it. With None, the platform's settings
            are read from this stack; if they are another stack's, the run is not read.
        unused_keys: keys whose values the caller does not use. Their problems are not reported.

    Raises:
        pulumi.RunError: there are problems. The text lists all of them, each with the key, its
            value, why it cannot be used, and what to do.
    """
    machines = other_platform.devices.machines if other_platform else 0
    reader = Reader(with_choices_made(raw, machines), secret_keys, unused_keys)
    settings = read_settings(reader, stack, kinds, other_platform)
    check_times(reader, raw)
    if other_platform is not None:
        _refuse_keys_of_the_platform(reader, raw, settings.platform_stack)
    if other_platform is not None or settings.platform is not None:
        reader.reject_unknown(keys_of_run())
    if reader.problems:
        lines = [f"  - {problem}" for problem in sorted(reader.shown_problems())]
        raise pulumi.RunError("\n".join(["the settings of this stack are not valid:", *lines]))
    return settings


def read_settings(
    reader: Reader,
    stack: str,
    kinds: Kinds,
    other_platform: PlatformForRuns | None = None,
) -> Settings:
    """Read every key. `reader` collects the problems; parts with a problem may be None."""
    check_stack_name(reader, stack)
    import_extensions(reader)
    platform_stack, topology = reader.text("platform"), _read_topology(reader, kinds)
    if platform_stack and topology == PLATFORM_ONLY:
        reader.problem(
            "topology",
            topology,
            f"stack {platform_stack!r} owns the platform, and this stack would make nothing",
            f"Set topology to one of {', '.join(kinds.workloads)}, or remove platform",
        )
        return Settings(stack, platform_stack, None, None)
    if platform_stack and other_platform is None:
        return Settings(stack, platform_stack, None, None)
    bundle, limits = read_bundle(reader), read_limits(reader)
    demands = read_demands(reader)
    platform, platform_of_run = None, other_platform
    if not platform_stack:
        platform = read_platform(reader, stack, kinds, bundle, limits, demands)
        platform_of_run = (
            PlatformForRuns(platform.devices, platform.queue, on_k3s=platform.on_k3s)
            if platform
            else PlatformForRuns(Devices("cpu", 0))
        )
        if platform and bundle:
            check_bundle_for_platform(
                reader, bundle, platform.cluster, platform.gpu_operator, platform.image
            )
    assert platform_of_run is not None
    check_user(reader, demands, on_k3s=platform_of_run.on_k3s)
    if topology == PLATFORM_ONLY:
        reader.keys += declared_defaults()  # The keys of a run are not used, and are no problem.
        return Settings(stack, "", platform, None)
    run = read_run(reader, stack, kinds, platform_of_run, bundle, limits, demands)
    if platform and platform.queues and run:
        check_own_run(reader, platform.queues, run.queue.name, run.compute.world, run.pods)
        check_own_devices(reader, platform, run, kinds)
    if platform and run:
        check_gpu_model(reader, run, platform.image.plan.torch_index_url or "")
    if run and bundle:
        check_bundle_for_run(reader, bundle, run.config)
    return Settings(stack, platform_stack, platform, run)


def _read_topology(reader: Reader, kinds: Kinds) -> str:
    """Read the kind of workload.

    If the value is the kind of a Kubernetes object, such as Job, the problem names the workload
    that makes such an object. The value is never `auto` here, because `with_choices_made` has
    replaced it.
    """
    by_object = [(kind.kind.lower(), name) for name, kind in kinds.workloads.items()]
    objects = dict(reversed(by_object))  # If two workloads make such an object, the first wins.
    return reader.choice("topology", (*kinds.workloads, PLATFORM_ONLY, AUTO), objects)


def _refuse_keys_of_the_platform(
    reader: Reader, raw: Mapping[str, str], platform_stack: str
) -> None:
    """Refuse settings of the platform, because nothing reads them in a stack without one."""
    defaults = declared_defaults()
    for key in sorted(set(defaults) - set(reader.keys)):
        if key in MAY_HOLD_SECRETS:
            reader.hide(key)
        if key in raw and raw[key] != defaults[key]:
            reader.problem(
                key,
                as_written(raw[key]),
                f"stack {platform_stack!r} owns the platform, and this setting is the platform's",
                f"Remove it here (`pulumi config rm {key}`) and set it there: "
                f"`pulumi config set --stack {platform_stack} {key} VALUE`",
            )
        reader.keys.append(key)
