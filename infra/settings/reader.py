"""Reads typed values out of the stack's configuration and collects what is wrong with it."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from infra.registry import Refusal
from infra.settings.secret import MAY_HOLD_SECRETS, Secret, is_url
from infra.settings.setting_error import problem_text
from trainer.config.problem import either

_PROXY = r"https?://(?:[^\s/@]*@)?[^\s/@:\[\]]+(?::\d{1,5})?/?"
# Of the user and the password of an address: Go, in which k3s is written, takes nothing else.
_OF_LOGIN = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*"


class Reader:
    """Typed access to raw configuration values; problems are collected, never raised.

    Pulumi.yaml gives every key a default, and the engine fills it in, so each key is there.
    A value that is wrong is replaced by a harmless one, so that reading goes on to the next key.

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        secret_keys: the keys whose values are encrypted in the stack's file.
        unused_keys: keys whose values are not used after the reading, so that they may be wrong.
    """

    def __init__(
        self,
        raw: Mapping[str, str],
        secret_keys: Iterable[str] = (),
        unused_keys: Iterable[str] = (),
    ) -> None:
        self._raw = raw
        self._unused_keys = frozenset(unused_keys)
        self._secret_keys = frozenset(secret_keys)
        self.keys: list[str] = []
        self.problems: list[str] = []
        self._wrong: set[str] = set()
        self._hidden = set(self._secret_keys)

    def problem(self, key: str, value: object, reason: str, hint: str) -> None:
        """Note that a value cannot be used.

        Args:
            key: the key of the stack's configuration.
            value: what is set; not shown when the key is encrypted, or hidden by `hide`, unless it
                is the empty text.
            reason: why it cannot be used; goes on after a colon, without a full stop.
            hint: what to do, as a sentence without its full stop.
        """
        self._note(key, value, reason, hint)
        self._wrong.add(key)

    def are_right(self, *keys: str) -> bool:
        """Whether no problem was noted of these keys, so that they can be compared."""
        return self._wrong.isdisjoint(keys)

    def refuse(self, refusal: Refusal) -> None:
        """Note values that do not go together, unless one of them is said to be wrong already.

        By themselves they are right, so what else they do not go together with is said too.
        """
        keys = (refusal.key, *refusal.with_keys)
        if self._wrong.isdisjoint(keys) and not any(
            wrong.startswith((f"{key}.", f"{key}[")) for wrong in self._wrong for key in keys
        ):
            self._note(refusal.key, refusal.value, refusal.reason, refusal.hint)

    def hide(self, key: str) -> None:
        """Let no message show a value of this key, which is meant to hold secrets.

        A user who has forgotten to encrypt it must not find its values on the screen, or in the
        log of a continuous integration.
        """
        self._hidden.add(key)

    def is_encrypted(self, key: str) -> bool:
        """Whether the value is encrypted in the stack's file."""
        return key in self._secret_keys

    def refuse_encrypted(self, key: str, where: str, hint: str) -> bool:
        """Note that a value in `key` is encrypted, where it would not stay secret.

        Args:
            key: of a setting whose values are passed on in plain text.
            where: who could see them, such as `everybody who may see the pods would see it there`.
            hint: what to do.

        Returns:
            Whether it is encrypted. Then say nothing else of it, as other messages show its value.
        """
        if not self.is_encrypted(key):
            return False
        reason = f"a value in it is encrypted, and {where} in plain text"
        self.problem(key, self._raw.get(key, ""), reason, hint)
        return True

    def text(
        self, key: str, *, pattern: str = r"[^\r\n]*", form: str = "", example: str = ""
    ) -> str:
        """A text that matches `pattern` as a whole.

        Args:
            key: the key of the stack's configuration.
            pattern: a regular expression; anything on one line by default.
            form: what such a text is, in words, such as "a size".
            example: one such text, for the message.
        """
        value = self._value(key)
        if re.fullmatch(pattern, value) is None:
            reason = f"it is not {form}" if form else "it has more than one line"
            hint = f"Write it like {example}" if example else "Write it on one line"
            self.problem(key, value, reason, hint)
            return ""
        return value

    def choice(
        self, key: str, choices: Iterable[str], also_called: Mapping[str, str] | None = None
    ) -> str:
        """One of `choices`; the first of them where the value is none.

        Args:
            key: the setting.
            choices: its values.
            also_called: the choice that is meant by another word, in small letters.
        """
        value, known = self._value(key), list(choices)
        if value in known:
            return value
        meant = (also_called or {}).get(value.lower())
        hint = f" (did you mean {meant}?)" if meant else did_you_mean(value, known)
        if self.are_right(key):  # else it was read before, and is said already
            self.problem(key, value, f"{key} has no such choice", f"Set {either(known)}{hint}")
        return known[0]

    def integer(self, key: str, *, at_least: int, at_most: int | None = None) -> int:
        """A whole number within limits; the lower limit where the value is none."""
        value = self._value(key)
        limits = f"of at least {at_least}" + ("" if at_most is None else f" and at most {at_most}")
        reason = "it is not a whole number"
        if re.fullmatch(r"[+-]?\d{1,18}", value):
            number = int(value)
            if at_least <= number and (at_most is None or number <= at_most):
                return number
            reason = "it is too small" if number < at_least else "it is too large"
        self.problem(key, value, reason, f"Set a whole number {limits}")
        return at_least

    def checksum(self, key: str) -> str:
        """A sha256 in hexadecimal digits, or an empty text."""
        form = "a sha256 checksum of 64 hexadecimal digits"
        example = "e3b0c442...b855, as sha256sum prints it"
        return self.text(key, pattern=r"([0-9a-f]{64})?", form=form, example=example)

    def size(self, key: str) -> str:
        """A quantity of bytes as Kubernetes writes it, in Ki, Mi, Gi or Ti."""
        pattern = r"[1-9]\d{0,8}(Ki|Mi|Gi|Ti)"
        return self.text(key, pattern=pattern, form="a size in Ki, Mi, Gi or Ti", example="50Gi")

    def boolean(self, key: str) -> bool:
        """`true` or `false`."""
        value = self._value(key)
        if value not in ("true", "false"):
            self.problem(key, value, "it is neither true nor false", "Set true or false")
        return value == "true"

    def mapping(self, key: str) -> dict[str, Any]:
        """An object, as nested dicts."""
        value = self._value(key)
        content = _from_json(value or "{}")
        if not isinstance(content, dict):
            hint = f"Set what is below it: `pulumi config set --path '{key}.NAME' VALUE`"
            self.problem(key, value, f"it is {_form(content)} and must be a mapping of keys", hint)
            return {}
        return cast(dict[str, Any], content)

    def sequence(self, key: str) -> list[Any]:
        """A list."""
        value = self._value(key)
        content = _from_json(value or "[]")
        if not isinstance(content, list):
            hint = f"Set its items: `pulumi config set --path '{key}[0]' VALUE`"
            self.problem(key, value, f"it is {_form(content)} and must be a list", hint)
            return []
        return cast(list[Any], content)

    def secret(self, key: str) -> Secret | None:
        """A value that must be encrypted in the stack's file; None when it is empty."""
        value = self._value(key)
        if value:
            self.require_encrypted(key)
        return Secret(value) if value else None

    def proxy_url(self, key: str) -> Secret | None:
        """A proxy's address; one that holds a password must be encrypted."""
        example = "http(s)://[user:password@]host[:port]"
        url = self.url(key, _PROXY, form="the address of a proxy", example=example)
        if url and url.url_has_password:
            self.require_encrypted(key)
        login = url.text.partition("//")[2].rpartition("@")[0] if url else ""
        if re.fullmatch(_OF_LOGIN, login) is None:
            reason = "its user or password has a character that k3s takes in no address"
            hint = 'Write each such character as its code, such as %22 for " and %25 for %'
            self.hide(key)
            self.problem(key, login, reason, hint)
        return url

    def url(
        self,
        key: str,
        pattern: str = r"https?://\S+",
        *,
        form: str = "an http(s) address",
        example: str = "https://host/path",
    ) -> Secret | None:
        """An address; None when it is empty or wrong. See `text` for the arguments.

        No message shows its user and password. Whether it may have them is up to the caller.
        """
        value = self._value(key)
        if not value:
            return None
        if re.fullmatch(pattern, value) is None or not is_url(value):
            shown = re.sub(r"//.*@", "//[secret]@", value, flags=re.DOTALL)
            self.problem(key, shown, f"it is not {form}", f"Write it like {example}")
            return None
        return Secret(value)

    def raw(self, key: str) -> str:
        """The text as it is, for a setting that has only to be compared with its default."""
        return self._value(key)

    def require_encrypted(self, key: str) -> None:
        """Note that `key` holds a secret, unless it is encrypted in the stack's file."""
        if key not in self._secret_keys:
            self._not_encrypted(key)

    def reject_unknown(self) -> None:
        """Note every key of the stack that nothing has asked for. Call it after all reads."""
        for key in sorted(set(self._raw) - set(self.keys)):
            close = difflib.get_close_matches(key, self.keys, n=1, cutoff=0.7)
            reason = "there is no such key" + (f" (did you mean {close[0]}?)" if close else "")
            if close and close[0] in MAY_HOLD_SECRETS:
                self.hide(key)
            hint = f"docs/settings.md lists the keys; `pulumi config rm {key}` removes this one"
            self.problem(key, self._raw[key], reason, hint)

    def _value(self, key: str) -> str:
        self.keys.append(key)
        if key not in self._raw:
            self.problems.append(f"{key}: not set, and Pulumi.yaml has no default for it")
        return self._raw.get(key, "")

    def _note(self, key: str, value: object, reason: str, hint: str) -> None:
        is_hidden = value != "" and re.split(r"[.\[]", key)[0] in self._hidden
        shown = repr(value)
        if is_hidden:
            shown = "[secret]"
        elif isinstance(value, bool):
            shown = str(value).lower()  # as the stack's file has it
        if key not in self._unused_keys:
            self.problems.append(problem_text(key, shown, reason, hint))

    def _not_encrypted(self, key: str) -> None:
        reason = "it holds a secret in plain text"
        hint = f"Encrypt it: `pulumi config set --secret {key}`"
        self.problems.append(problem_text(key, "[secret]", reason, hint))


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """` (did you mean NAME?)` with the known name that is most like a text; empty: none is."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(text.lower(), names, n=1)
    return f" (did you mean {names[close[0]]}?)" if close else ""


def _form(content: object) -> str:
    """What a value is, in words."""
    if isinstance(content, dict):
        return "a mapping of keys"
    return "a list" if isinstance(content, list) else "a single value"


def _from_json(text: str) -> object:
    """The value that a text of JSON stands for; a text that is none stands for itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
