"""A namespace that goes with what this stack has made in it, and what else is expected there."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infra.kube.paths import NAMESPACES


@dataclass(frozen=True)
class OwnNamespace:
    """What has to be known before the namespace is deleted; see infra/kube/namespaces/strangers.py.

    Args:
        name: of the namespace; the owner's label on it says whose it is.
        subject: what is taken away with it, for people, such as `controllers: 'kueue'`.
        release: name of the Helm release in it; empty: there is none.
        leaves: kind and name (`Secret certificate`) of what its pods make there, and what is no
            part of another object.
        definitions: names of the CustomResourceDefinitions whose objects are not looked at, as they
            go with what is taken away or are looked at elsewhere.
    """

    name: str
    subject: str
    release: str = ""
    leaves: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Path of the namespace at the API server."""
        return f"{NAMESPACES}/{self.name}"

    def fields(self) -> dict[str, Any]:
        """This value as a field of a job; what is empty is left out."""
        return {key: value for key, value in asdict(self).items() if value}


def parse_own_namespace(given: Mapping[str, Any]) -> OwnNamespace:
    """That of a job. Raises KeyError: a field is missing."""
    return OwnNamespace(
        name=str(given["name"]),
        subject=str(given["subject"]),
        release=str(given.get("release", "")),
        leaves=tuple(str(each) for each in given.get("leaves", ())),
        definitions=tuple(str(each) for each in given.get("definitions", ())),
    )
