"""Reads which kind of workload, storage, network or delivery a stack chooses, and its options.

The protocols say what the settings need to know about a kind. The kinds themselves are in
`infra/workloads`, `infra/storages`, `infra/networks`, `infra/deliveries` and `infra/controllers`.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, Protocol, cast

from infra.registry import Kind, OptionError, Refusal
from infra.settings.reader import LARGEST, Reader
from infra.settings.secret import Secret
from infra.settings.similar_names import did_you_mean, is_misspelt


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


def import_extensions(reader: Reader) -> None:
    """Import the modules of the setting `extensions`, which register kinds of their own."""
    hint = "Set the name of a Python module in the project's folder, such as my_kinds"
    for module in reader.sequence("extensions"):
        if not isinstance(module, str) or not re.fullmatch(r"\w+(\.\w+)*", module):
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
    """Read which kind is chosen, and its options. The options are None if they cannot be used."""
    name = reader.choice(key, kinds)
    if not reader.are_right(key):
        reader.raw(options_key)  # Do not check the options: they may be right for the kind meant.
        return Chosen(name, None)
    _hide_secrets_of_all(reader, options_key, kinds)
    elsewhere = dict[str, str]()
    for other, kind in kinds.items():
        for field in fields(kind.options):
            elsewhere.setdefault(field.name, f"{key}: {other}")
    owner, options = f"{key}: {name}", kinds[name].options
    return Chosen(name, read_options(reader, options_key, owner, options, elsewhere))


def _hide_secrets_of_all(reader: Reader, options_key: str, kinds: Mapping[str, Kind]) -> None:
    """Hide the options if one of them is a secret of any kind, and not only of the chosen kind.

    A user may set a password and choose, before or afterwards, a kind that takes none.
    """
    given = reader.raw(options_key)
    options = (field for kind in kinds.values() for field in fields(kind.options))
    if any(_is_secret(field) and field.name in given for field in options):
        reader.hide(options_key)


def read_options(
    reader: Reader,
    key: str,
    owner: str,
    options: type,
    elsewhere: Mapping[str, str] | None = None,
) -> Any:
    """Read an object into a dataclass whose fields are texts, whole numbers, booleans or secrets.

    A field `Secret | None` takes a text that must be encrypted in the stack's file.

    Args:
        reader: gives the object and collects the problems with it.
        key: the object's key.
        owner: the choice that has these options, for messages, such as `storage: nfs`.
        options: the dataclass; a field without a default must be given.
        elsewhere: the names of the options of all choices, and for each the first choice that has
            it, such as `storage: nfs`.

    Returns:
        An instance of the dataclass; None if there is a problem, which `reader` has noted.
    """
    known = {field.name: field for field in fields(options)}
    if any(map(_is_secret, known.values())):
        reader.hide(key)
    given = reader.mapping(key)
    if not reader.are_right(key):
        return None
    _refuse_unknown_options(reader, key, owner, given, list(known), elsewhere or {})
    for name, field in known.items():
        if name not in given and is_misspelt(name, given, known):
            continue
        _check_option(reader, f"{key}.{name}", owner, field, given)
    if not reader.are_right(*(f"{key}.{name}" for name in {*known, *given})):
        return None  # Each option has its message, and the checks of the dataclass would add more.
    values = {
        name: Secret(value) if _is_secret(known[name]) else value for name, value in given.items()
    }
    try:
        return options(**values)
    except OptionError as refused:
        name = refused.option
        value = given.get(name, "" if _is_secret(known[name]) else known[name].default)
        reader.problem(f"{key}.{name}", value, refused.reason, refused.hint)
    except ValueError as error:  # The kind does not say which option is wrong.
        reader.problem(key, given, str(error), f"Set what {owner} can work with")
    return None


def _is_secret(field: Field[Any]) -> bool:
    return "Secret" in str(field.type)


def _refuse_unknown_options(
    reader: Reader,
    key: str,
    owner: str,
    given: Mapping[str, Any],
    known: Sequence[str],
    elsewhere: Mapping[str, str],
) -> None:
    for name in sorted(set(given) - set(known)):
        reason = f"{owner} has no such option" if known else f"{owner} has no options"
        meant = did_you_mean(name, known)
        if name in elsewhere and not meant:
            hint = f"Set {elsewhere[name]}, which has it, or remove it"
        elif not known:
            hint = "Remove it"
        elif len(known) == 1:
            hint = f"Set {known[0]}, the only one, or remove it"
        else:
            hint = f"Set one of {', '.join(known)}{meant}"
        reader.problem(f"{key}.{name}", given[name], reason, hint)


# What a field of each type takes, as messages say it.
_TAKES: Mapping[type, str] = {str: "a text", int: "a whole number", bool: "true or false"}


def _type_of(field: Field[Any]) -> type:
    """Return the type of an option's value.

    In a module with `from __future__ import annotations` a field's type is the text `int`.
    """
    if _is_secret(field):
        return str
    by_name = {type_.__name__: type_ for type_ in _TAKES}
    return by_name.get(str(field.type), cast(type, field.type))


def _check_option(
    reader: Reader, where: str, owner: str, field: Field[Any], given: Mapping[str, Any]
) -> None:
    """Note a problem if an option is missing, has a wrong type, or is a secret in plain text."""
    if field.name not in given:
        if field.default is MISSING and field.default_factory is MISSING:
            hint = f"Set it: `pulumi config set --path {where} VALUE`"
            reader.problem(where, "", f"{owner} needs it", hint)
        return
    value, type_ = given[field.name], _type_of(field)
    takes = _TAKES.get(type_)
    if takes and type(value) is not type_:
        reader.problem(where, value, f"{owner} takes {takes} here", f"Set {takes}")
    elif type_ is int and value > LARGEST:
        hint = f"Set a whole number of at most {LARGEST}"
        reader.problem(where, value, "it is too large", hint)
    elif _is_secret(field) and not reader.is_encrypted(where.partition(".")[0]):
        reader.problem(
            where,
            value,
            "it would stand readable in the stack's file",
            f"Encrypt it: `pulumi config set --secret --path {where} VALUE`",
        )
