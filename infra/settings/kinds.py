"""The kinds that the settings may choose from, and the options that each kind brings."""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, Protocol, cast

from infra.registry import Kind, OptionError, Refusal
from infra.settings.reader import Reader, did_you_mean
from infra.settings.secret import Secret


class WorkloadChoice(Kind, Protocol):
    """What the settings have to know of a kind of workload."""

    @property
    def several_pods(self) -> bool:
        """Whether the setting `pods` counts."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the object that is made in Kubernetes, such as `Job`."""
        ...

    @property
    def queued(self) -> bool:
        """Whether a queue of Kueue can hold it back."""
        ...

    @property
    def no_ttl_because(self) -> str:
        """Why `ttlSecondsAfterFinished` cannot be used with it; empty: it can."""
        ...

    @property
    def longest_instance(self) -> int:
        """How many characters the setting `instance` may have."""
        ...


class MadeStorage(Protocol):
    """What the settings have to know of a storage that was worked out."""

    @property
    def folder_on_host(self) -> str:
        """The folder of a node that holds the data; empty: there is none."""
        ...

    @property
    def access_mode(self) -> str:
        """Access mode of its claim."""
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

    @property
    def make(self) -> Callable[[Any], MadeStorage]:
        """Works out the storage of a `StorageRequest`. Raises ValueError where it cannot be."""
        ...


class NetworkChoice(Kind, Protocol):
    """What the settings have to know of a network profile; see `infra/networks/profile.py`."""

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports by which the ranks of several pods are to reach each other."""
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
    def serves_further(self) -> bool:
        """Whether it then also writes to the machines of `nodes`."""
        ...

    @property
    def check(self) -> Callable[[Any], Iterable[Refusal]]:
        """What it cannot do of a `DeliveryAsked`."""
        ...

    @property
    def shared_options(self) -> tuple[str, ...]:
        """Names of its options that also hold for the runs of other stacks on the platform."""
        ...

    @property
    def embedded_registry(self) -> bool:
        """Whether the nodes of our k3s give each other the images of imageRepository's host."""
        ...


class ControllerChoice(Kind, Protocol):
    """What the settings have to know of a controller; see `infra/controllers/kind.py`."""

    @property
    def version(self) -> str:
        """Version of its chart or its manifests."""
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
    hint = "Set the name of a Python module in the project's folder, such as my_kinds"
    for module in map(str, reader.sequence("extensions")):
        if not re.fullmatch(r"\w+(\.\w+)*", module):
            reader.problem("extensions", module, "it is not the name of a Python module", hint)
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            reader.problem("extensions", module, f"it cannot be imported ({error})", hint)
        except (SyntaxError, ValueError) as error:  # such as a name that another kind has
            mend = "Mend that in the module, or remove it from extensions"
            reader.problem("extensions", module, f"it cannot be imported ({error})", mend)


def read_kind(reader: Reader, key: str, options_key: str, kinds: Mapping[str, Kind]) -> Chosen:
    """Read which kind is chosen, and its options; None where they cannot be used."""
    name = reader.choice(key, kinds)
    if not reader.are_right(key):
        reader.raw(options_key)  # they may be right for the kind that was meant
        return Chosen(name, None)
    _hide_secrets_of_all(reader, options_key, kinds)
    return Chosen(name, read_options(reader, options_key, f"{key}: {name}", kinds[name].options))


def _hide_secrets_of_all(reader: Reader, options_key: str, kinds: Mapping[str, Kind]) -> None:
    """A password may be set beside the kind that takes none, before or after the right one."""
    given = reader.raw(options_key)
    options = (field for kind in kinds.values() for field in fields(kind.options))
    if any(_is_secret(field) and field.name in given for field in options):
        reader.hide(options_key)


def read_options(reader: Reader, key: str, owner: str, options: type) -> Any:
    """Read an object into a dataclass whose fields are texts, numbers, booleans or secrets.

    A field `Secret | None` takes a text that is encrypted in the stack's file.

    Args:
        reader: gives the object and collects what is wrong with it.
        key: the object's key.
        owner: what the options belong to, for messages, such as `storage: nfs`.
        options: the dataclass; a field without a default must be given.

    Returns:
        An instance of the dataclass; None where something is wrong.
    """
    known = {field.name: field for field in fields(options)}
    if any(map(_is_secret, known.values())):
        reader.hide(key)
    given = reader.mapping(key)
    if not reader.are_right(key):
        return None
    _refuse_unknown_options(reader, key, owner, given, list(known))
    for name, field in known.items():
        _check_option(reader, f"{key}.{name}", owner, field, given)
    if not reader.are_right(*(f"{key}.{name}" for name in {*known, *given})):
        return None
    values = {
        name: Secret(value) if _is_secret(known[name]) else value for name, value in given.items()
    }
    try:
        return options(**values)
    except OptionError as refused:
        name = refused.option
        value = given.get(name, "" if _is_secret(known[name]) else known[name].default)
        reader.problem(f"{key}.{name}", value, refused.reason, refused.hint)
    except ValueError as error:  # of a kind that does not say which option it is
        reader.problem(key, given, str(error), f"Set what {owner} can work with")
    return None


def _is_secret(field: Field[Any]) -> bool:
    return "Secret" in str(field.type)


def _refuse_unknown_options(
    reader: Reader, key: str, owner: str, given: Mapping[str, Any], known: Sequence[str]
) -> None:
    for name in sorted(set(given) - set(known)):
        if known:
            reason = f"{owner} has no such option"
            meant = did_you_mean(name, known)
            one = f"Set {known[0]}, the only one, or remove it" if len(known) == 1 else ""
            hint = one or f"Set one of {', '.join(known)}{meant}"
        else:
            reason, hint = f"{owner} has no options", "Remove it"
        reader.problem(f"{key}.{name}", given[name], reason, hint)


# What a field of each type takes, in words.
_TAKES: Mapping[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}
_TYPES = {type_.__name__: type_ for type_ in _TAKES}


def _check_option(
    reader: Reader, where: str, owner: str, field: Field[Any], given: Mapping[str, Any]
) -> None:
    """Note what is wrong with one option: missing, of another type, or a secret in plain text."""
    if field.name not in given:
        if field.default is MISSING and field.default_factory is MISSING:
            hint = f"Set it: `pulumi config set --path {where} VALUE`"
            reader.problem(where, "", f"{owner} needs it", hint)
        return
    value = given[field.name]
    type_ = str if _is_secret(field) else _TYPES.get(str(field.type), field.type)
    takes = _TAKES.get(cast(type, type_))
    if takes and type(value) is not type_:
        reader.problem(where, value, f"{owner} takes {takes} here", f"Set {takes}")
    elif _is_secret(field) and not reader.is_encrypted(where.partition(".")[0]):
        reader.problem(
            where,
            value,
            "it would stand readable in the stack's file",
            f"Encrypt it: `pulumi config set --secret --path {where} VALUE`",
        )
