"""The kinds that the settings may choose from, and the options that each kind brings."""

import importlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, Protocol

from infra.registry import Kind
from infra.settings.reader import Reader
from infra.settings.secret import Secret


class WorkloadChoice(Kind, Protocol):
    """What the settings have to know of a kind of workload."""

    @property
    def several_pods(self) -> bool:
        """Whether the setting `pods` counts."""
        ...

    @property
    def kind(self) -> str:
        """Of the object that is made in Kubernetes, such as `Job`."""
        ...

    @property
    def queued(self) -> bool:
        """Whether a queue of Kueue can hold it back."""
        ...

    @property
    def no_ttl_because(self) -> str:
        """Why `ttlSecondsAfterFinished` cannot be used with it; empty: it can."""
        ...


class StorageChoice(Kind, Protocol):
    """What the settings have to know of a kind of storage; see `infra/storages/kind.py`."""

    @property
    def purges(self) -> Literal["folder", "claim", "nothing"]:
        """What `dataOnDestroy: purge` deletes."""
        ...

    @property
    def needs_cluster(self) -> bool:
        """Whether the cluster has to outlive `pulumi destroy`."""
        ...

    @property
    def needs_namespace(self) -> bool:
        """Whether the namespace has to be there before."""
        ...

    @property
    def needs_own_machines(self) -> bool:
        """Whether something is set up on the machines of a k3s that the stack installs."""
        ...


class NetworkChoice(Kind, Protocol):
    """What the settings have to know of a network profile; see `infra/networks/profile.py`."""

    @property
    def transports(self) -> tuple[str, ...]:
        """By which the ranks of several pods are to reach each other."""
        ...

    @property
    def for_nccl_between_pods(self) -> bool:
        """Whether only runs on GPUs in several pods have a use for it."""
        ...

    def with_options(self, options: Any) -> object:
        """The profile as it is chosen. Raises ValueError where an option cannot be used."""
        ...


class DeliveryChoice(Kind, Protocol):
    """What the settings have to know of a delivery; see `infra/deliveries/kind.py`."""

    @property
    def needs_node(self) -> bool:
        """Whether it writes to the nodes themselves, which the stack of a run alone cannot."""
        ...

    @property
    def shared_options(self) -> tuple[str, ...]:
        """Those of its options that hold for the runs of other stacks on the platform, too."""
        ...

    @property
    def embedded_registry(self) -> bool:
        """Whether the nodes of our k3s give each other the images of imageRepository's host."""
        ...


class ControllerChoice(Kind, Protocol):
    """What the settings have to know of a controller; see `infra/controllers/kind.py`."""

    @property
    def version(self) -> str:
        """Of its chart or its manifests."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files of its manifests; empty: it is installed by its chart."""
        ...

    @property
    def namespace(self) -> str:
        """Where it is installed."""
        ...

    @property
    def chosen_by(self) -> tuple[str, str] | tuple[()]:
        """Key and value of the setting that stands for it; empty: its name in `controllers`."""
        ...

    @property
    def setting(self) -> str:
        """`key: 'value'` of the setting by which it is installed."""
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


def import_extensions(reader: Reader) -> None:
    """Import the modules of the setting `extensions`, which register kinds of their own."""
    for module in reader.sequence("extensions"):
        try:
            importlib.import_module(str(module))
        except ImportError as error:
            reader.problem(
                "extensions",
                module,
                f"it cannot be imported ({error})",
                "Set the name of a Python module in the project's folder, such as my_kinds",
            )


def read_kind(reader: Reader, key: str, options_key: str, kinds: Mapping[str, Kind]) -> Chosen:
    """Read which kind is chosen, and its options."""
    name = reader.choice(key, kinds)
    return Chosen(name, read_options(reader, options_key, f"{key}: {name}", kinds[name].options))


def read_options(reader: Reader, key: str, owner: str, options: type) -> Any:
    """Read an object into a dataclass whose fields are texts, numbers, booleans or secrets.

    A field `Secret | None` takes a text that is encrypted in the stack's file.

    Args:
        reader: gives the object and collects what is wrong with it.
        key: the object's key.
        owner: what the options belong to, for messages, such as `storage: nfs`.
        options: the dataclass; a field without a default must be given.
    """
    values: dict[str, Any] = {}
    known = {field.name: field for field in fields(options)}
    secrets = {name for name, field in known.items() if "Secret" in str(field.type)}
    if secrets:
        reader.hide(key)
    given = dict(reader.mapping(key))
    for name in sorted(set(given) - set(known)):
        reason = f"{owner} has no such option" if known else f"{owner} has no options"
        hint = f"Set one of {', '.join(known)}" if known else "Remove it"
        reader.problem(f"{key}.{name}", given[name], reason, hint)
    for name, field in known.items():
        if name not in given:
            if field.default is MISSING and field.default_factory is MISSING:
                hint = f"Set it: `pulumi config set --path {key}.{name} VALUE`"
                reader.problem(f"{key}.{name}", "", f"{owner} needs it", hint)
                return None
            continue
        value = given[name]
        wanted = {str: "a text", int: "a whole number", bool: "true or false"}
        types = {"str": str, "int": int, "bool": bool}
        type_ = types.get(str(field.type), field.type)
        if type_ in wanted and type(value) is not type_:
            reason = f"{owner} takes {wanted[type_]} here"
            reader.problem(f"{key}.{name}", value, reason, f"Set {wanted[type_]}")
            continue
        if name in secrets:
            if not isinstance(value, str):
                reader.problem(f"{key}.{name}", value, f"{owner} takes a text here", "Set a text")
                continue
            if not reader.is_encrypted(key):
                reader.problem(
                    f"{key}.{name}",
                    value,
                    "it would stand readable in the stack's file",
                    f"Encrypt it: `pulumi config set --secret --path {key}.{name} VALUE`",
                )
            value = Secret(value)
        values[name] = value
    if not all(_given(f, values) for f in known.values()):
        return None
    try:
        return options(**values)
    except ValueError as reason:  # the kind knows which values it can work with
        reader.problem(key, given, str(reason), f"Set what {owner} can work with")
        return None


def _given(field: Any, values: Mapping[str, Any]) -> bool:
    has_default = field.default is not MISSING or field.default_factory is not MISSING
    return has_default or field.name in values
