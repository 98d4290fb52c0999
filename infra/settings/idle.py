"""Names settings that have no effect, because of other settings. All functions are pure."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from infra.settings.platform import PlatformSettings
from infra.settings.project import declared_defaults
from infra.settings.run import RunSettings

# Whether settings have no effect, their names, and why they have none.
_Rule: TypeAlias = tuple[bool, tuple[str, ...], str]

_OPERATOR = (
    *("gpuOperatorVersion", "gpuOperatorChart", "gpuOperatorDriver", "gpuOperatorToolkit"),
    *("gpuOperatorRegime", "gpuOperatorDcgmExporter", "gpuOperatorTimeoutSeconds"),
)
_K3S = ("k3sSha256", "k3sInstallerSha256", "k3sMirror", "k3sForce", "k3sRegistries")
_SSH = (
    *("sshPort", "sshUser", "sshPrivateKey", "sshHostKey"),
    *("sshJumpHost", "sshJumpPort", "sshJumpUser", "sshJumpHostKey"),
)


def idle_settings(
    raw: Mapping[str, str], platform: PlatformSettings | None, run: RunSettings | None
) -> list[str]:
    """Return a note for each group of settings that were set and have no effect.

    Settings of a run in a stack that makes a platform alone are not named: users set
    `topology: none` for some time and keep them.

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        platform: the settings of the stack's own platform; None if another stack owns it.
        run: the settings of the stack's run; None if it has none.
    """
    defaults, notes = declared_defaults(), list[str]()
    for is_idle, keys, why in (*_of_platform(platform), *_of_run(run)):
        given = [key for key in keys if raw.get(key, defaults[key]) != defaults[key]]
        if is_idle and given:
            notes.append(f"{', '.join(given)}: set, and without effect, because {why}")
    return notes


def _of_platform(platform: PlatformSettings | None) -> Iterable[_Rule]:
    if platform is None:
        return ()
    host, proxy = platform.host, platform.proxy
    return (
        (
            platform.gpu_operator is None,
            _OPERATOR,
            "this stack does not install the GPU Operator (gpuOperator; auto does so with "
            "cluster: k3s alone)",
        ),
        (
            not platform.cluster.installs_k3s,
            _K3S,
            "this stack installs no k3s (cluster, k3sExisting)",
        ),
        (not (host.ssh or platform.nodes), _SSH, "host is local and nodes lists no machine"),
        (
            not (proxy.http or proxy.https),
            ("noProxy", "noProxyOverride", "proxyScope"),
            "neither httpProxy nor httpsProxy is set",
        ),
        (
            platform.devices.accelerator == "cpu",
            ("migProfile", "gpuTimeSlices"),
            "accelerator is cpu",
        ),
        (platform.bundle is None, ("bundleSha256",), "bundle is not set"),
    )


def _of_run(run: RunSettings | None) -> Iterable[_Rule]:
    if run is None:
        return ()
    world, placement = run.compute.world, run.pods.neighbours.placement
    return (
        (world.pods == 1, ("placement", "placementLabel"), "the run has one pod"),
        (
            world.pods > 1 and placement == "auto" and not run.queue_levels,
            ("placementLabel",),
            "placement is auto",
        ),
        (run.when_busy != "wait", ("whenBusyTimeoutSeconds",), "whenBusy is not wait"),
    )
