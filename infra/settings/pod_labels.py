"""Checks labels, annotations, node selectors and tolerations as Kubernetes checks them.

Kubernetes would refuse a wrong one only when the pods are made. By then another run may already
have been suspended to make room.
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ has the syntax, and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ the tolerations.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from infra.settings.reader import Reader
from infra.settings.similar_names import did_you_mean
from trainer.config.problem import shown_value

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"(?=.{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_TOLERATION_KEYS = ("key", "operator", "value", "effect", "tolerationSeconds")
_OPERATORS = ("Equal", "Exists")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def read_texts(reader: Reader, key: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return an object with its values as texts. Numbers and booleans are turned into texts.

    Args:
        reader: collects the problems that are found.
        key: key of the setting.
        given: value of the setting.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if type(value) in (dict, list, type(None)):
            reason = "it is not a single text"
            reader.problem(f"{key}.{name}", value, reason, "Write one text, in quotation marks")
            continue
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def is_key(text: str) -> bool:
    """Whether a text can be the key of a label, an annotation or a taint."""
    return re.fullmatch(f"({_DOMAIN}/)?{_NAME}", text) is not None


def is_value(text: str) -> bool:
    """Whether a text can be the value of a label."""
    return re.fullmatch(f"({_NAME})?", text) is not None


def check_labels(
    reader: Reader, key: str, given: Mapping[str, str], *, values_too: bool = True
) -> None:
    """Note keys and values that Kubernetes would refuse.

    Args:
        reader: collects the problems that are found.
        key: key of the setting.
        given: labels or annotations, the value of the setting.
        values_too: whether values are checked as those of labels; an annotation may be any text.
    """
    for name, value in given.items():
        if fault := label_fault(name, value if values_too else ""):
            reader.problem(f"{key}.{name}", value, *fault)


def label_fault(name: str, value: str) -> tuple[str, str] | None:
    """Why Kubernetes would refuse a label, and what to do; None if it would accept it."""
    if not is_key(name):
        reason = f"Kubernetes takes no key {name!r}"
        hint = "Write it like team or example.org/team, with at most 63 characters behind the /"
        return reason, hint
    if not is_value(value):
        reason = "Kubernetes takes no such value of a label"
        return reason, "Use at most 63 letters, digits, '.', '_' and '-', and end with no sign"
    return None


def toleration_fault(item: object) -> str:
    """Why this is not a toleration; empty if it is one."""
    if type(item) is not dict:
        return "it is not an object"
    given = cast(dict[str, Any], item)
    if others := sorted(set(given) - set(_TOLERATION_KEYS)):
        return f"a toleration has no key {others[0]!r}{did_you_mean(others[0], _TOLERATION_KEYS)}"
    key, value = given.get("key", ""), given.get("value", "")
    operator = given.get("operator", "Equal")
    if type(key) is not str:
        return f"{shown_value(key)} cannot be the key of a taint; put it in quotation marks"
    if key and not is_key(key):
        return f"{key!r} cannot be the key of a taint"
    if operator not in _OPERATORS:
        meant = did_you_mean(operator, _OPERATORS)
        return f"the operator {shown_value(operator)} is neither {' nor '.join(_OPERATORS)}{meant}"
    if operator == "Equal" and not key:
        return "without a key the operator must be Exists, which tolerates every taint"
    if operator == "Exists" and value:
        return "the operator Exists takes no value"
    if type(value) is not str or not is_value(value):
        return (
            f"{shown_value(value)} cannot be the value of a taint; put numbers in quotation marks"
        )
    if "effect" in given and (effect := given["effect"]) not in _EFFECTS:
        meant = did_you_mean(effect, _EFFECTS)
        return f"the effect {shown_value(effect)} is none of {', '.join(_EFFECTS)}{meant}"
    seconds = given.get("tolerationSeconds")
    is_number = type(seconds) is int and abs(seconds) < 2**63
    if seconds is not None and (not is_number or given.get("effect") != "NoExecute"):
        return "tolerationSeconds is a whole number of 64 bits and goes with the effect NoExecute"
    return ""
