"""Reads which kind of workload, storage, network or delivery a stack chooses, and its options."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, cast

from infra.registry import Kind, OptionError
from infra.settings.kinds import Chosen
from infra.settings.reader import LARGEST, Reader
from infra.settings.secret import Secret
from infra.settings.similar_names import did_you_mean, is_misspelt


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
