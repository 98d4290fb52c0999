"""What a look at a cluster has found, and questions that these credentials may not be allowed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError
from infra.kube.objects import Json, name_of

T = TypeVar("T")
U = TypeVar("U")


@dataclass
class Findings:
    """What cannot work, and what is worth knowing, each as a sentence.

    Args:
        problems: what cannot work.
        notes: what is worth knowing.
        refused_now: what the cluster refuses at the moment, and may take soon.
    """

    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    refused_now: list[str] = field(default_factory=list[str])

    def unseen(self, what: str) -> None:
        """Note that the user may not look at something, so that nothing is said about it."""
        self.notes.append(f"it was not checked {what}: these credentials may not look there")

    def add(self, other: "Findings") -> None:
        """Take what another look has found."""
        self.problems += other.problems
        self.notes += other.notes
        self.refused_now += other.refused_now


def unless_forbidden(ask: Callable[[], T], otherwise: Callable[[ApiError], U]) -> T | U:
    """The answer; or that of `otherwise`, where these credentials may not ask.

    Raises:
        ApiError: the API server refuses it for another reason.
    """
    try:
        return ask()
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return otherwise(error)


def object_at(api: Api, path: str) -> Json | Literal["unseen"] | None:
    """The object; None: there is none; `unseen`: these credentials may not look at it."""
    try:
        return api.get(path)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return "unseen"


def objects_at(api: Api, path: str) -> list[Json] | None:
    """The objects; None: these credentials may not look at them."""
    return list_if_allowed(api, path)[0]


def list_if_allowed(api: Api, path: str, selector: str = "") -> tuple[list[Json] | None, str]:
    """The objects and an empty text; or None and the server's words, where it forbids that."""
    return unless_forbidden(
        lambda: (api.list(path, selector), ""), lambda error: (None, str(error))
    )


def listed(api: Api, path: str) -> str:
    """The names of the objects, sorted; empty where there is none to be seen."""
    return ", ".join(sorted(name_of(item) for item in objects_at(api, path) or []))
