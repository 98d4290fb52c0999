"""What a controller is that a platform can install: a pinned chart, and how it is taken away."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.names import GPU_TOLERATION
from infra.registry import NoOptions

# A cluster may have no nodes but those of its control plane, or those with GPUs.
TOLERATIONS = (
    GPU_TOLERATION,
    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
)


@dataclass(frozen=True)
class ControllerKind:
    """A controller that the platform can install.

    Args:
        name: its name in the setting, and that of its Helm release.
        title: what people call it.
        chart: address (oci://) of its chart in the registry where its project publishes it.
        version: of the chart.
        digest: of the chart of this version, by which Helm asks the registry for it, so that
            nobody can put another one in its place.
        namespace: of its own; everybody finds it there.
        groups: API groups that the cluster serves when it is there.
        definitions: names of its CustomResourceDefinitions.
        values: of the chart, where they differ from the chart's own.
        probe: an object that the API server takes as soon as the controller's webhooks answer. It
            is only tried, and never made.
        awaited: kinds of its objects in its namespace that have to be Available, as their status
            says, before it counts as there.
        chosen_by: key and value of the setting by which it is installed; empty: its name among
            `controllers`.
        otherwise: what to do where the cluster has one of somebody else's; empty: not to install
            it.
        options: it has none.
    """

    name: str
    title: str
    chart: str
    version: str
    digest: str
    namespace: str
    groups: tuple[str, ...]
    definitions: tuple[str, ...]
    values: Mapping[str, Any]
    probe: Mapping[str, Any]
    awaited: tuple[str, ...] = ()
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
    def pinned_chart(self) -> str:
        """The chart's address with its digest."""
        return f"{self.chart}@{self.digest}"
