"""Defines a controller that a platform can install, with its source and how it is recognised."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.names import GPU_TOLERATION
from infra.objects import Manifest
from infra.registry import NoOptions

# A cluster may have no nodes except those of its control plane, or those with GPUs.
TOLERATIONS = (
    GPU_TOLERATION,
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
)


@dataclass(frozen=True)
class PinnedChart:
    """A Helm chart.

    Helm makes the definitions in a chart's folder crds/ once, and never changes them: those of
    JobSet and of kube-prometheus-stack. So a later version of such a chart would run with the
    former definitions in clusters that have them. Before it is pinned here, a step has to apply its
    definitions.

    Args:
        address: its address (oci://) in the registry where its project publishes it.
        digest: the digest of the chart. Helm asks the registry for the chart by this digest, so
            that nobody can replace it by another chart.
        values: the chart's values that differ from its defaults.
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
        address: the address from which the file is downloaded.
        sha256: the SHA-256 of its content, in hexadecimal.
    """

    address: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name in a folder, which is the end of its address."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class PinnedManifests:
    """Published manifests, for a project without a chart that can be pinned.

    Args:
        files: all files of manifests.
        change: turns the objects of the files, in the files' order, into the objects that are
            installed. It may change the objects that it gets.
    """

    files: tuple[PinnedFile, ...]
    change: Callable[[list[Manifest]], list[Manifest]]


@dataclass(frozen=True)
class ControllerKind:
    """A controller that the platform can install.

    Args:
        name: the controller's name in the setting, and the name of its Helm release.
        title: the controller's name in messages.
        version: the version of the chart or the manifests.
        source: the chart or the manifests that are installed.
        namespace: the controller's own namespace, under its usual name.
        groups: the API groups that the cluster serves when the controller is installed. An item
            contains the version if another controller serves other versions of the same group.
        definitions: the names of its CustomResourceDefinitions.
        probe: an object that the API server accepts as soon as the controller's webhooks answer. It
            is only sent in a dry run, and never made.
        awaited: kinds of objects in the controller's namespace whose status must say Available
            before the controller counts as ready.
        made_by_itself: kind and name of the objects of its own kinds that the controller makes by
            itself. They do not show that somebody uses the controller.
        leaves: kind and name of the objects that its pods make in its namespace without an owner.
            They are not taken for the objects of somebody else.
        needs: the name of another controller that this one needs; empty if it needs none.
        chosen_by: key and value of the setting that installs the controller; empty if this is its
            name in `controllers`.
        otherwise: what to do if somebody else has installed this controller on the cluster. If it
            is empty, the advice is not to install it.
        options: always NoOptions, because controllers have no options.
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
        """The key and the value of the setting that installs it, for messages."""
        key, value = self.chosen_by or ("controllers", self.name)
        return f"{key}: {value!r}"

    @property
    def way_out(self) -> str:
        """What to do if somebody else has installed this controller on the cluster."""
        alone = f"Take {self.name} out of controllers: this stack's runs use the one that is there"
        return self.otherwise or alone

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files of its manifests; empty if it is installed from its chart."""
        if isinstance(self.source, PinnedChart):
            return ()
        return tuple(file.name for file in self.source.files)
