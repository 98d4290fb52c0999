"""Collects the problems of a stack's settings, and keeps secrets out of their texts."""

import json
import re
from collections.abc import Iterable, Mapping

from infra.registry import Refusal
from infra.settings.setting_error import Problem, problem_text
from trainer.config.problem import logins, shown_value, without_logins


class Problems:
    """The problems of settings. They are collected and never raised.

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        secret_keys: the keys whose values are encrypted in the stack's file.
        unused_keys: keys whose values the caller does not use. Their problems are not reported.
    """

    def __init__(
        self, raw: Mapping[str, str], secret_keys: Iterable[str], unused_keys: Iterable[str]
    ) -> None:
        self._raw = raw
        self._unused_keys = frozenset(unused_keys)
        self._secret_keys = frozenset(secret_keys)
        self.problems: list[Problem] = []
        self._wrong: set[str] = set()
        self._hidden = set(self._secret_keys)

    def problem(self, key: str, value: object, reason: str, hint: str) -> None:
        """Note that a value cannot be used.

        Args:
            key: the key of the stack's configuration.
            value: the value that is set. It is not shown if the key is encrypted or hidden by
                `hide`, unless it is the empty text.
            reason: why it cannot be used. The text follows a colon and has no full stop.
            hint: what to do, as a sentence without its full stop.
        """
        self._note(key, value, reason, hint)
        self._wrong.add(key)

    def add_problem(self, text: str) -> None:
        """Note a problem whose whole text is known. It begins with its key and a colon."""
        self.problems.append(Problem(text.partition(": ")[0], text))

    def shown_problems(self) -> list[str]:
        """Return the problems as they may be shown, without the user and password of an address.

        Not only the values are looked at but whole messages, because a reason or a hint may repeat
        a part of a value.
        """
        values = self._raw.values()
        found = logins([*map(from_json, values), *values, *self._raw])
        shown = [problem.text for problem in self.problems]
        for login in sorted(found, key=len, reverse=True):
            for written in {login, repr(login)[1:-1], json.dumps(login)[1:-1]}:
                shown = [text.replace(f"{written}@", "[secret]@") for text in shown]
        return shown

    def are_right(self, *keys: str) -> bool:
        """Whether no problem was noted for these keys, so that their values can be compared."""
        return self._wrong.isdisjoint(keys)

    def refuse(self, refusal: Refusal) -> None:
        """Note values that do not go together, unless a problem with one of them was noted before.

        The keys do not count as wrong afterwards, because each value is right by itself. So later
        checks can note further combinations that do not work.
        """
        if not any(map(self._has_problem, (refusal.key, *refusal.with_keys))):
            self._note(refusal.key, refusal.value, refusal.reason, refusal.hint)

    def _has_problem(self, key: str) -> bool:
        """Whether a problem was noted for a key or for something inside its value."""
        inside = (f"{key}.", f"{key}[")
        return any(wrong == key or wrong.startswith(inside) for wrong in self._wrong)

    def hide(self, key: str) -> None:
        """Let no message show a value of this key, because it may hold secrets.

        If a user has forgotten to encrypt it, its values must not appear on the screen or in the
        log of a continuous integration.
        """
        self._hidden.add(key)

    def is_encrypted(self, key: str) -> bool:
        """Whether the value is encrypted in the stack's file."""
        return key in self._secret_keys

    def refuse_encrypted(self, key: str, where: str, hint: str) -> bool:
        """Note that a value in `key` is encrypted, although it would not stay secret.

        Args:
            key: key of a setting whose values are passed on in plain text.
            where: who could see them, such as `everybody who may see the pods would see it there`.
            hint: what to do.

        Returns:
            Whether a value is encrypted. If so, the caller must note no further problems of the
            setting, because they could show the value.
        """
        if not self.is_encrypted(key):
            return False
        reason = f"a value in it is encrypted, and {where} in plain text"
        self.problem(key, self._raw.get(key, ""), reason, hint)
        return True

    def require_encrypted(self, key: str) -> None:
        """Note a problem unless `key`, which holds a secret, is encrypted in the stack's file."""
        if not self.is_encrypted(key):
            reason = "it holds a secret in plain text"
            hint = f"Encrypt it: `pulumi config set --secret {key}`"
            self.add_problem(problem_text(key, "[secret]", reason, hint))

    def _note(self, key: str, value: object, reason: str, hint: str) -> None:
        is_hidden = value != "" and head_of(key) in self._hidden
        shown = "[secret]" if is_hidden else shown_value(without_logins(value))
        if key not in self._unused_keys:
            self.problems.append(Problem(key, problem_text(key, shown, reason, hint)))


def head_of(path: str) -> str:
    """Return the setting in which a value is: `nodes` for `nodes[0].name`."""
    return re.split(r"[.\[]", path)[0]


def from_json(text: str) -> object:
    """Return the value of a JSON text. A text that is no JSON is returned as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
