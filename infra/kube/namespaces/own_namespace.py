"""Describes a namespace that the stack makes and deletes, and the objects expected in it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infra.kube.paths import NAMESPACES


@dataclass(frozen=True)
class OwnNamespace:
    """What has to be known before the namespace is deleted; see infra/kube/namespaces/strangers.py.

    Args:
        name: the name of the namespace. The owner's label on it tells to whom it belongs.
        subject: what is removed with the namespace, in words, such as `controllers: 'kueue'`.
        release: the name of the Helm release in it; empty: there is none.
        leaves: kind and name (`Secret certificate`) of the objects that its pods make there, and
            that no other object owns.
        definitions: the names of CustomResourceDefinitions whose objects are not looked at, because
            they are deleted anyway or are checked elsewhere.
    """

    name: str
    subject: str
    release: str = ""
    leaves: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The API server's path of the namespace."""
        return f"{NAMESPACES}/{self.name}"

    def fields(self) -> dict[str, Any]:
        """This value as JSON for a job. Empty fields are left out."""
        return {key: value for key, value in asdict(self).items() if value}


def parse_own_namespace(given: Mapping[str, Any]) -> OwnNamespace:
    """Read the JSON object of `OwnNamespace.fields`. Raises KeyError: a field is missing."""
    return OwnNamespace(
        name=str(given["name"]),
        subject=str(given["subject"]),
        release=str(given.get("release", "")),
        leaves=tuple(str(each) for each in given.get("leaves", ())),
        definitions=tuple(str(each) for each in given.get("definitions", ())),
    )
