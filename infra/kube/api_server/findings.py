"""Collects what checks of a cluster find, and reads objects that the user may not be able to read.

If these credentials may not read an object, the functions here return a value instead of raising an
ApiError with status 403.
"""

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
    """What the checks have found, each as a sentence.

    Args:
        problems: what cannot work, so that `pulumi up` must not go on.
        notes: what the user should know.
        refused_now: what the cluster refuses at the moment and may accept soon.
    """

    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    refused_now: list[str] = field(default_factory=list[str])

    def unseen(self, what: str) -> None:
        """Note that these credentials may not read something, so it was not checked.

        Args:
            what: what was not checked, as a clause that begins with a word such as `whether`.
        """
        self.notes.append(f"it was not checked {what}: these credentials may not look there")

    def add(self, other: "Findings") -> None:
        """Add what another check has found."""
        self.problems += other.problems
        self.notes += other.notes
        self.refused_now += other.refused_now


def unless_forbidden(ask: Callable[[], T], otherwise: Callable[[ApiError], U]) -> T | U:
    """The value of `ask`, or that of `otherwise` if these credentials may not ask.

    Raises:
        ApiError: the API server refuses the request for another reason.
    """
    try:
        return ask()
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return otherwise(error)


def object_at(api: Api, path: str) -> Json | Literal["unseen"] | None:
    """The object at a path; None: there is none; `unseen`: these credentials may not read it."""
    try:
        return api.get(path)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return "unseen"


def objects_at(api: Api, path: str) -> list[Json] | None:
    """The objects of a collection; None: these credentials may not list them."""
    return list_if_allowed(api, path)[0]


def list_if_allowed(api: Api, path: str, selector: str = "") -> tuple[list[Json] | None, str]:
    """The objects of a collection and an empty text; or None and the server's message, if these
    credentials may not list them.
    """
    return unless_forbidden(
        lambda: (api.list(path, selector), ""), lambda error: (None, str(error))
    )


def listed(api: Api, path: str) -> str:
    """The sorted names of a collection's objects.

    The text is empty if there are none or if these credentials may not list them.
    """
    return ", ".join(sorted(name_of(item) for item in objects_at(api, path) or []))
