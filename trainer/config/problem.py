"""Describes a value that cannot be used: its key, the reason, and the remedy. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

LOGIN = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
"""The user and the password in an address."""
_HIDDEN = "[secret]"
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")  # YAML needs no quotation marks around it.
_DIGEST = "sha256:"  # After it and an @ stands the digest of an image, and no host.
_BEFORE_LOGIN = " \t\r\n/@'\"[{(,"  # With these characters begins no user in front of a colon.


class ConfigError(ValueError):
    """The run configuration is wrong. The message lists all problems at once."""

    def __init__(self, problems: Sequence[str]):
        self.problems = tuple(problems)
        super().__init__("\n".join(["the run configuration is not valid:", *self.problems]))


def problem_text(key: str, value: object, reason: str, remedy: str) -> str:
    """Describe one problem in a line. The user and password of an address are not shown.

    Args:
        key: The option, as the user wrote it.
        value: The value that is set.
        reason: Why the value cannot be used. It follows a colon, and has no full stop.
        remedy: What the user should do, as a sentence without its full stop.
    """
    return f"{key}: {shown_value(without_logins(value))} cannot be used: {reason}. {remedy}."


def without_logins(value: object) -> object:
    """Return a value as messages may show it, without the user and password in its addresses.

    Rather too much is hidden than too little: all between `://` and the last @ of a text, and
    without `://` all from a user with a colon on. So it does not matter which characters a password
    has, and whether the address is right.

    Args:
        value: A text, or a list or mapping with texts in it.
    """
    if isinstance(value, str):
        start, end = _login_at(value)
        return f"{value[:start]}{_HIDDEN}{value[end:]}" if end else value
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        return {without_logins(key): without_logins(each) for key, each in items}
    if isinstance(value, (list, tuple)):
        return [without_logins(each) for each in cast(Sequence[object], value)]
    return value


def logins(value: object) -> set[str]:
    """Return the users and passwords in a value: what `without_logins` hides.

    The words of a text count alone, too, because a message may show only one of them.
    """
    if isinstance(value, str):
        texts = (value, *value.split())
        found = [text[slice(*_login_at(text))] for text in texts]
        return {word for login in found for word in (login, *login.split()[-1:]) if word}
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        return {login for item in items for each in item for login in logins(each)}
    if isinstance(value, (list, tuple)):
        return {login for each in cast(Sequence[object], value) for login in logins(each)}
    return set()


def _login_at(text: str) -> tuple[int, int]:
    """Return where the user and password begin and end; twice 0 if a text has none."""
    end = text.rfind("@")
    while end >= 0 and text.startswith(_DIGEST, end + 1):
        end = text.rfind("@", 0, end)
    colon = text.find(":", 0, max(end, 0))
    if colon < 0:
        return 0, 0
    if text.startswith("://", colon):
        return colon + len("://"), end
    return 1 + max(text.rfind(character, 0, colon) for character in _BEFORE_LOGIN), end


def shown_value(value: object) -> str:
    """Return a value for messages as YAML writes it in one line: `{a: true, b: [null, 'c']}`."""
    if isinstance(value, Mapping):
        items = cast(Mapping[object, object], value).items()
        return f"{{{', '.join(f'{_shown_key(key)}: {shown_value(each)}' for key, each in items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown_value, cast(Sequence[object], value)))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def _shown_key(key: object) -> str:
    if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
        return key
    return shown_value(key)


def either(choices: Sequence[str]) -> str:
    """Join texts with `or`: `a`, `a or b`, `a, b or c`."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(candidates: Sequence[str]) -> str:
    """Return the end of a sentence that names `candidates`, or an empty text without any."""
    return f" (did you mean {' or '.join(candidates)}?)" if candidates else ""
