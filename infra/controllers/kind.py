"""What a controller is that a platform can install: where it comes from, how it is taken away."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.names import GPU_TOLERATION
from infra.objects import Manifest
from infra.registry import NoOptions

# A cluster may have no nodes but those of its control plane, or those with GPUs.
TOLERATIONS = (
    GPU_TOLERATION,
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
)


@dataclass(frozen=True)
class PinnedChart:
    """A Helm chart.

    Args:
        address: (oci://) in the registry where its project publishes it.
        digest: of the chart, by which Helm asks the registry for it, so that nobody can put
            another one in its place.
        values: of the chart, where they differ from the chart's own.
    """

    address: str
    digest: str
    values: Mapping[str, Any]

    @property
    def pinned(self) -> str:
        """The chart's address with its digest."""
        return f"{self.address}@{self.digest}"


@dataclass(frozen=True)
class PinnedFile:
    """A file of manifests that a project publishes.

    Args:
        address: where it is downloaded.
        sha256: of its content, in hexadecimal.
    """

    address: str
    sha256: str

    @property
    def name(self) -> str:
        """The name under which a folder has the file."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class PinnedManifests:
    """Manifests, for a project without a chart that can be pinned.

    Args:
        files: all of them.
        change: makes the objects that are installed of those in the files, in the files' order. It
            may change what it is given.
    """

    files: tuple[PinnedFile, ...]
    change: Callable[[list[Manifest]], list[Manifest]]


@dataclass(frozen=True)
class ControllerKind:
    """A controller that the platform can install.

    Args:
        name: its name in the setting, and that of its Helm release.
        title: what people call it.
        version: of the chart or the manifests.
        source: what is installed.
        namespace: of its own; everybody finds it there.
        groups: API groups that the cluster serves when it is there; with the version, where
            another controller serves other versions of the same group.
        definitions: names of its CustomResourceDefinitions.
        probe: an object that the API server takes as soon as the controller's webhooks answer. It
            is only tried, and never made.
        awaited: kinds of its objects in its namespace that have to be Available, as their status
            says, before it counts as there.
        made_by_itself: kind and name of what it makes of its own kinds, for nobody in particular.
        leaves: kind and name of what its pods make in its namespace without naming an owner, so
            that it is not taken for somebody else's.
        chosen_by: key and value of the setting by which it is installed; empty: its name among
            `controllers`.
        otherwise: what to do where the cluster has one of somebody else's; empty: not to install
            it.
        options: it has none.
    """

    name: str
    title: str
    version: str
    source: PinnedChart | PinnedManifests
    namespace: str
    groups: tuple[str, ...]
    definitions: tuple[str, ...]
    probe: Mapping[str, Any]
    awaited: tuple[str, ...] = ()
    made_by_itself: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    needs: str = ""
    chosen_by: tuple[str, str] | tuple[()] = ()
    otherwise: str = ""
    options: type = NoOptions

    @property
    def setting(self) -> str:
        """Key and value of the setting that an error is about."""
        key, value = self.chosen_by or ("controllers", self.name)
        return f"{key}: {value!r}"

    @property
    def way_out(self) -> str:
        """What to do where the cluster has one of somebody else's."""
        alone = f"Take {self.name} out of controllers: this stack's runs use the one that is there"
        return self.otherwise or alone

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that it is installed from; empty: it is installed by its chart."""
        if isinstance(self.source, PinnedChart):
            return ()
        return tuple(file.name for file in self.source.files)
