"""Reads typed values from the stack's configuration, and collects the problems in it."""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, cast

from infra.settings.problems import Problems, from_json, head_of
from infra.settings.project import project_name
from infra.settings.secret import MAY_HOLD_SECRETS, Secret, is_url
from infra.settings.similar_names import did_you_mean, nearest
from trainer.config.problem import either

LARGEST = 2**31 - 1
"""The largest whole number of a setting. Kubernetes keeps most of its numbers in 32 bits, and the
engine cannot keep a time of many more seconds."""
_PROXY = r"https?://(?:[^\s/@]*@)?[^\s/@:\[\]]+(?::\d{1,5})?/?"
# The user and password of an address. Go, in which k3s is written, accepts no other characters.
_OF_LOGIN = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*"


class Reader(Problems):
    """Typed access to raw configuration values. It notes the problems that it finds.

    Pulumi.yaml has a default for every key, and the engine fills it in, so every key has a value.
    A wrong value is replaced by a harmless one, so that reading goes on with the next key.
    """

    def __init__(
        self,
        raw: Mapping[str, str],
        secret_keys: Iterable[str] = (),
        unused_keys: Iterable[str] = (),
    ) -> None:
        super().__init__(raw, secret_keys, unused_keys)
        self.keys: list[str] = []

    def text(
        self, key: str, *, pattern: str = r"[^\r\n]*", form: str = "", example: str = ""
    ) -> str:
        """Read a text that matches `pattern` as a whole; empty if it does not.

        Args:
            key: the key of the stack's configuration.
            pattern: a regular expression. The default accepts any text of one line.
            form: description of such a text for the message, such as "a size".
            example: one such text, for the message.
        """
        value = self.raw(key)
        if "\0" in value:
            self.problem(key, value, "it has a zero byte in it", "Write it without that byte")
            return ""
        if re.fullmatch(pattern, value) is None:
            reason = f"it is not {form}" if form else "it has more than one line"
            hint = f"Write it like {example}" if example else "Write it on one line"
            self.problem(key, value, reason, hint)
            return ""
        return value

    def command(self, key: str) -> str:
        """Read the words of a command, which a shell divides; empty if it could not."""
        text = self.text(key).strip()
        try:
            words = shlex.split(text)
        except ValueError:
            hint = "Close each quotation mark, as in a shell"
            self.problem(key, text, "a quotation mark in it has no end", hint)
            return ""
        if len(words) == 1 and " " in words[0] and "/" not in words[0]:
            reason = "in quotation marks it is one word, which would be the name of the program"
            self.problem(key, text, reason, f"Set {words[0]}")
            return ""
        return text

    def choice(
        self,
        key: str,
        choices: Iterable[str],
        also_called: Mapping[str, str] | None = None,
        more: str = "",
    ) -> str:
        """Read one of `choices`. A wrong value gives the first of them.

        Args:
            key: the setting.
            choices: its values.
            also_called: other words that users may write, in lower case, and the choices they mean.
            more: what else to do, at the end of the message.
        """
        value, known = self.raw(key), list(choices)
        if value in known:
            return value
        meant = (also_called or {}).get(value.lower())
        hint = f" (did you mean {meant}?)" if meant else did_you_mean(value, known)
        if self.are_right(key):  # Otherwise its problem was noted by an earlier read.
            self.problem(
                key, value, f"{key} has no such choice", f"Set {either(known)}{hint}{more}"
            )
        return known[0]

    def integer(self, key: str, *, at_least: int, at_most: int = LARGEST) -> int:
        """Read a whole number within limits. A wrong value gives the lower limit."""
        value = self.raw(key)
        reason, limits = "it is not a whole number", f"of at least {at_least}"
        if re.fullmatch(r"[+-]?\d{1,18}", value):
            number = int(value)
            if at_least <= number <= at_most:
                return number
            reason = "it is too small" if number < at_least else "it is too large"
        elif re.fullmatch(r"[+-]?\d+", value):
            reason = "it is too small" if value.startswith("-") else "it is too large"
        if at_most < LARGEST or reason == "it is too large":
            limits += f" and at most {at_most}"
        self.problem(key, value, reason, f"Set a whole number {limits}")
        return at_least

    def checksum(self, key: str) -> str:
        """Read a sha256 in hexadecimal digits, or an empty text."""
        form = "a sha256 checksum of 64 hexadecimal digits (0-9, a-f)"
        example = "e3b0c442...b855, as sha256sum prints it"
        return self.text(key, pattern=r"([0-9a-f]{64})?", form=form, example=example)

    def size(self, key: str) -> str:
        """Read a number of bytes as Kubernetes writes it, in Ki, Mi, Gi or Ti."""
        pattern = r"[1-9][0-9]{0,8}(Ki|Mi|Gi|Ti)"
        return self.text(key, pattern=pattern, form="a size in Ki, Mi, Gi or Ti", example="50Gi")

    def boolean(self, key: str) -> bool:
        """Read `true` or `false`. A wrong value gives False."""
        value = self.raw(key)
        if value not in ("true", "false"):
            self.problem(key, value, "it is neither true nor false", "Set true or false")
        return value == "true"

    def mapping(self, key: str) -> dict[str, Any]:
        """Read an object as nested dicts. A wrong value gives an empty one."""
        content = from_json(self.raw(key) or "{}")
        if isinstance(content, dict):
            return cast(dict[str, Any], content)
        hint = f"Set what is below it: `pulumi config set --path '{key}.NAME' VALUE`"
        self._refuse_form(key, content, "a mapping of keys", hint)
        return {}

    def sequence(self, key: str) -> list[Any]:
        """Read a list. A wrong value gives an empty one."""
        content = from_json(self.raw(key) or "[]")
        if isinstance(content, list):
            return cast(list[Any], content)
        hint = f"Set its items: `pulumi config set --path '{key}[0]' VALUE`"
        self._refuse_form(key, content, "a list", hint)
        return []

    def _refuse_form(self, key: str, content: object, wanted: str, hint: str) -> None:
        """Note that a value has another form, unless an earlier read has noted its problem."""
        if self.are_right(key):
            reason = f"it is {_form(content)} and must be {wanted}"
            self.problem(key, as_written(self._raw.get(key, "")), reason, hint)

    def secret(self, key: str) -> Secret | None:
        """Read a value that must be encrypted in the stack's file; None if it is empty."""
        value = self.raw(key)
        if value:
            self.require_encrypted(key)
        return Secret(value) if value else None

    def proxy_url(self, key: str) -> Secret | None:
        """Read a proxy's address; None if it is empty or wrong.

        An address with a password must be encrypted in the stack's file.
        """
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
        """Read an address; None if it is empty or wrong. `text` has the same arguments.

        No message shows the user and password in it. The caller decides whether it may have them.
        """
        value = self.raw(key)
        if not value:
            return None
        if re.fullmatch(pattern, value) is None or not is_url(value):
            self.problem(key, value, f"it is not {form}", f"Write it like {example}")
            return None
        return Secret(value)

    def raw(self, key: str) -> str:
        """Return the text of a setting without a check, such as to compare it with its default.

        The other methods read by this one. It notes that the key exists.
        """
        self.keys.append(key)
        if key not in self._raw:
            self.add_problem(f"{key}: not set, and Pulumi.yaml has no default for it")
        return self._raw.get(key, "")

    def reject_unknown(self, inner: Mapping[str, str]) -> None:
        """Note a problem for each key that nothing has read. Call it after all reads.

        Args:
            inner: the paths of values inside settings, by their names.
        """
        for key in sorted(set(self._raw) - set(self.keys)):
            if ":" in key:
                self._refuse_prefix(key)
                continue
            head = head_of(key)
            if not {nearest(key, self.keys), nearest(head, self.keys)}.isdisjoint(MAY_HOLD_SECRETS):
                self.hide(head)
            reason, hint = self._why_unknown(key, inner)
            self.problem(key, as_written(self._raw[key]), reason, hint)

    def _why_unknown(self, key: str, inner: Mapping[str, str]) -> tuple[str, str]:
        """Return why a key is no setting, and what to do. `inner` is as for `reject_unknown`."""
        if key == project_name():
            reason = "Pulumi reads no settings that are indented below it"
            hint = f"Write each as a key of its own below config, such as {project_name()}:gpus"
        elif path := key if head_of(key) in self.keys else inner.get(key):
            reason = f"it is a value inside the setting {head_of(path)}, and no setting of its own"
            hint = (
                f"Set it by `pulumi config set --path '{path}' VALUE`, and remove this one: "
                f"`pulumi config rm '{key}'`"
            )
        else:
            reason = f"there is no such key{did_you_mean(key, self.keys)}"
            hint = f"docs/settings.md lists the keys; `pulumi config rm {key}` removes this one"
        return reason, hint

    def _refuse_prefix(self, key: str) -> None:
        """Note a key with a misspelt prefix, which `own_values` leaves in front of it."""
        name = key.partition(":")[2]
        if name in MAY_HOLD_SECRETS:
            self.hide(key)
        close = nearest(name, self.keys)
        meant = f" (did you mean {project_name()}:{close}?)" if close else ""
        reason = f"the settings of this project begin with {project_name()}:{meant}"
        hint = f"Set it by that name, and remove this one: `pulumi config rm {key}`"
        self.problem(key, as_written(self._raw[key]), reason, hint)


def as_written(text: str) -> object:
    """Return a setting's value for a message: an object or a list, or else the text itself.

    Args:
        text: the value as Pulumi passes it, in which objects and lists are JSON.
    """
    content = from_json(text)
    return cast(object, content) if isinstance(content, (dict, list)) else text


def _form(content: object) -> str:
    """Return the kind of a value for messages."""
    if isinstance(content, dict):
        return "a mapping of keys"
    return "a list" if isinstance(content, list) else "a single value"
