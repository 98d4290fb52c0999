"""Reads typed values out of the stack's configuration and collects what is wrong with it."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from infra.secret import Secret


class Reader:
    """Typed access to raw configuration values; problems are collected, never raised.

    Pulumi.yaml gives every key a default, and the engine fills it in, so each key is there.
    A value that is wrong is replaced by a harmless one, so that reading goes on to the next key.

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        secret_keys: the keys whose values are encrypted in the stack's file.
    """

    def __init__(self, raw: Mapping[str, str], secret_keys: Iterable[str] = ()) -> None:
        self._raw = raw
        self._secret_keys = frozenset(secret_keys)
        self.keys: list[str] = []
        self.problems: list[str] = []

    def problem(self, key: str, value: object, allowed: str) -> None:
        """Note that `value` of `key` cannot be used."""
        shown = "[secret]" if key in self._secret_keys else repr(value)
        self.problems.append(f"{key}: {shown} is not allowed; allowed: {allowed}")

    def text(self, key: str, *, pattern: str = r"[^\r\n]*", allowed: str = "one line") -> str:
        """A text that matches `pattern` as a whole; `allowed` says the same in words."""
        value = self._value(key)
        if re.fullmatch(pattern, value) is None:
            self.problem(key, value, allowed)
            return ""
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str:
        """One of `choices`."""
        value, known = self._value(key), list(choices)
        if value not in known:
            close = difflib.get_close_matches(value, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            self.problem(key, value, " or ".join(known) + hint)
            return known[0]
        return value

    def integer(self, key: str, *, at_least: int, at_most: int | None = None) -> int:
        """A whole number within limits."""
        value = self._value(key)
        limits = f">= {at_least}" + ("" if at_most is None else f" and <= {at_most}")
        if re.fullmatch(r"[+-]?\d{1,18}", value):
            number = int(value)
            if at_least <= number and (at_most is None or number <= at_most):
                return number
        self.problem(key, value, f"a whole number {limits}")
        return at_least

    def boolean(self, key: str) -> bool:
        """`true` or `false`."""
        value = self._value(key)
        if value not in ("true", "false"):
            self.problem(key, value, "true or false")
        return value == "true"

    def mapping(self, key: str) -> dict[str, Any]:
        """An object, as nested dicts."""
        value = self._value(key)
        try:
            content: object = json.loads(value or "{}")
        except ValueError:
            content = value
        if not isinstance(content, dict):
            self.problem(key, value, "a mapping of keys")
            return {}
        return cast(dict[str, Any], content)

    def secret(self, key: str) -> Secret | None:
        """A value that must be encrypted in the stack's file; None when it is empty."""
        value = self._value(key)
        if value:
            self.require_encrypted(key)
        return Secret(value) if value else None

    def proxy_url(self, key: str) -> Secret | None:
        """A proxy's address; one that holds a password must be encrypted."""
        value = self._value(key)
        if not value:
            return None
        if re.fullmatch(r"https?://(?:[^\s/@]*@)?[^\s/@:]+(?::\d{1,5})?/?", value) is None:
            shown = re.sub(r"//.*@", "//[secret]@", value)
            self.problem(key, shown, "http(s)://[user:password@]host[:port]")
        elif "@" in value and key not in self._secret_keys:
            self._not_encrypted(key)
        return Secret(value)

    def require_encrypted(self, key: str) -> None:
        """Note that `key` holds a secret, unless it is encrypted in the stack's file."""
        if key not in self._secret_keys:
            self._not_encrypted(key)

    def reject_unknown(self) -> None:
        """Note every key of the stack that nothing has asked for. Call it after all reads."""
        for key in sorted(set(self._raw) - set(self.keys)):
            close = difflib.get_close_matches(key, self.keys, n=1, cutoff=0.7)
            hint = f"did you mean {close[0]}? " if close else ""
            shown = "[secret]" if key in self._secret_keys else repr(self._raw[key])
            self.problems.append(
                f"{key}: unknown key with value {shown}; {hint}"
                "allowed: the keys that Pulumi.yaml declares (docs/settings.md)"
            )

    def _value(self, key: str) -> str:
        self.keys.append(key)
        if key not in self._raw:
            self.problems.append(f"{key}: not set, and Pulumi.yaml has no default for it")
        return self._raw.get(key, "")

    def _not_encrypted(self, key: str) -> None:
        self.problems.append(
            f"{key}: holds a secret in plain text; allowed: an encrypted value, set by "
            f"`pulumi config set --secret {key}`"
        )
