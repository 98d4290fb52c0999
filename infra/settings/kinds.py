"""What the settings need to know about a kind of workload, storage, network and so on.

The kinds themselves are in `infra/workloads`, `infra/storages`, `infra/networks`,
`infra/deliveries` and `infra/controllers`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from infra.registry import Kind, Refusal


class WorkloadChoice(Kind, Protocol):
    """What the settings need to know about a kind of workload."""

    @property
    def several_pods(self) -> bool:
        """Whether the workload may have several pods, as the setting `pods` says."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the workload's object in Kubernetes, such as `Job`."""
        ...

    @property
    def queued(self) -> bool:
        """Whether Kueue can hold the workload back until it has its quota."""
        ...

    @property
    def no_ttl_because(self) -> str:
        """Why `ttlSecondsAfterFinished` cannot be used with it; empty if it can."""
        ...

    @property
    def longest_instance(self) -> int:
        """The largest number of characters of the setting `instance`."""
        ...

    @property
    def child_ending(self) -> str:
        """The ending that the names of the run's objects must not have, as a regular expression;
        empty if there is none.
        """
        ...


class MadeStorage(Protocol):
    """What the settings need to know about the storage that a kind makes from a request."""

    @property
    def folder_on_host(self) -> str:
        """The folder of a node that holds the data; empty if no such folder exists."""
        ...

    @property
    def access_mode(self) -> str:
        """Access mode of the storage's claim, such as `ReadWriteOnce`."""
        ...


class StorageChoice(Kind, Protocol):
    """What the settings need to know about a kind of storage; see `infra/storages/kind.py`."""

    @property
    def purges(self) -> Literal["folder", "claim", "nothing"]:
        """What `dataOnDestroy: purge` deletes."""
        ...

    @property
    def needs_cluster(self) -> bool:
        """Whether the data can only be reached if the cluster outlives `pulumi destroy`."""
        ...

    @property
    def needs_namespace(self) -> bool:
        """Whether the namespace must exist before `pulumi up`."""
        ...

    @property
    def needs_own_machines(self) -> bool:
        """Whether it sets up something on the machines of a k3s that the stack installs."""
        ...

    @property
    def make(self) -> Callable[[Any], MadeStorage]:
        """Makes the storage for a `StorageRequest`. Raises ValueError if that is not possible."""
        ...


class NetworkChoice(Kind, Protocol):
    """What the settings need to know about a network profile; see `infra/networks/profile.py`."""

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that the ranks of several pods should use between them; empty: any."""
        ...

    @property
    def contradictions(self) -> Mapping[str, tuple[str, ...]]:
        """Variables that would take this network from the ranks, with the values that would."""
        ...

    @property
    def for_nccl_between_pods(self) -> bool:
        """Whether the profile is only of use to runs with GPUs and several pods."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the training pods."""
        ...

    @property
    def resources(self) -> Mapping[str, str]:
        """Further resources of which each training pod asks for an amount."""
        ...

    def with_options(self, options: Any) -> "NetworkChoice":
        """Return the profile with these options. Raises ValueError if one cannot be used."""
        ...


class DeliveryChoice(Kind, Protocol):
    """What the settings need to know about a delivery; see `infra/deliveries/kind.py`."""

    @property
    def needs_node(self) -> bool:
        """Whether it writes to the nodes themselves, which a stack without a platform cannot do."""
        ...

    @property
    def serves_further(self) -> bool:
        """Whether a delivery that writes to nodes also writes to the machines of `nodes`."""
        ...

    @property
    def check(self) -> Callable[[Any], Iterable[Refusal]]:
        """Returns why the delivery cannot do what a `DeliveryAsked` asks for; empty if it can."""
        ...

    @property
    def shared_options(self) -> tuple[str, ...]:
        """Names of the options that also apply to the runs of other stacks on the platform."""
        ...

    @property
    def embedded_registry(self) -> bool:
        """Whether the nodes of this stack's k3s share the images of imageRepository's host."""
        ...


class ControllerChoice(Kind, Protocol):
    """What the settings need to know about a controller; see `infra/controllers/kind.py`."""

    @property
    def version(self) -> str:
        """Version of the controller's chart or manifests."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files with its manifests; empty if it is installed by a chart."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace in which the controller is installed."""
        ...

    @property
    def chosen_by(self) -> tuple[str, str] | tuple[()]:
        """Key and value of the setting that chooses it; empty: its name in `controllers` does."""
        ...

    @property
    def setting(self) -> str:
        """The setting that chooses the controller, as the text `key: 'value'`."""
        ...


@dataclass(frozen=True)
class Kinds:
    """The registries of the settings `topology`, `storage`, `network`, `imageDelivery` and
    `controllers`."""

    workloads: Mapping[str, WorkloadChoice]
    storages: Mapping[str, StorageChoice]
    networks: Mapping[str, NetworkChoice]
    deliveries: Mapping[str, DeliveryChoice]
    controllers: Mapping[str, ControllerChoice]


@dataclass(frozen=True)
class Chosen:
    """The name of a kind, and an instance of its options dataclass."""

    name: str
    options: Any
