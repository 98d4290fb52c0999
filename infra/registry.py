"""A registry of kinds: the possible values of one setting, each defined in a file of its own."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Kind(Protocol):
    """What every kind has: its name, which is a value of the setting, and its own options."""

    @property
    def name(self) -> str:
        """The value of the setting that chooses this kind."""
        ...

    @property
    def options(self) -> type:
        """A dataclass whose fields are the keys of the kind's options in the stack's settings.

        Its `__post_init__` may check the values and raise OptionError.
        """
        ...


@dataclass(frozen=True)
class NoOptions:
    """The options of a kind that has none."""


class OptionError(ValueError):
    """An option cannot be used. The options dataclass of a kind raises it in `__post_init__`.

    Args:
        option: the name of the option.
        reason: why the value cannot be used. The text follows a colon, and has no full stop.
        hint: what to do, as a sentence without its full stop.
    """

    def __init__(self, option: str, reason: str, hint: str) -> None:
        super().__init__(f"{option}: {reason}. {hint}.")
        self.option = option
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Refusal:
    """A kind's reason why the values of several settings cannot be used together.

    Args:
        key: the setting that the message is about.
        value: the value of that setting.
        reason: why the value cannot be used. The text follows a colon, and has no full stop.
        hint: what to do, as a sentence without its full stop.
        with_keys: the other settings that lead to this refusal. If one of them has a wrong value
            itself, only that error is shown, and not this refusal.
    """

    key: str
    value: object
    reason: str
    hint: str
    with_keys: tuple[str, ...] = ()


K = TypeVar("K", bound=Kind)


class Registry(Mapping[str, K], Generic[K]):
    """The kinds of one setting, by name.

    Args:
        setting: the key of the stack's settings whose value chooses a kind.
        kinds: the kinds that come with this program; the first one is the default.
    """

    def __init__(self, setting: str, kinds: Iterable[K]) -> None:
        self.setting = setting
        self._kinds: dict[str, K] = {}
        for kind in kinds:
            self.register(kind)

    def register(self, kind: K) -> None:
        """Add a kind, so that the setting accepts its name.

        Raises:
            ValueError: Another kind has this name.
        """
        other = self._kinds.get(kind.name)
        if other is not None and other is not kind:
            raise ValueError(
                f"{self.setting}: there is a kind {kind.name!r} already; "
                "give the new kind another name"
            )
        self._kinds[kind.name] = kind

    def __getitem__(self, name: str) -> K:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)
