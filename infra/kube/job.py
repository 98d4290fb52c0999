"""The job of a task: what the program reads as JSON from standard input."""

import json
from dataclasses import dataclass
from typing import Any, cast

from infra.kube.api_server.access import Access


@dataclass(frozen=True)
class Job:
    """The fields that every task has, and the fields of its own in `fields`."""

    access: Access
    namespace: str
    owner: str
    stack: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """A field that must hold text. Raises ValueError otherwise."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be text")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """A field that must hold a whole number. Raises ValueError otherwise."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a whole number")
        return value

    def texts(self, name: str) -> list[str]:
        """A field that may hold a list of texts."""
        value: object = self.fields.get(name) or []
        if not isinstance(value, list):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a list")
        return [str(entry) for entry in cast(list[object], value)]

    def mappings(self, name: str) -> list[dict[str, Any]]:
        """A field that may hold a list of JSON objects."""
        value: object = self.fields.get(name) or []
        items = cast(list[object], value) if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in items):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must list JSON objects")
        return cast(list[dict[str, Any]], items)

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that may hold a JSON object."""
        value: object = self.fields.get(name) or {}
        if not isinstance(value, dict):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a JSON object")
        return cast(dict[str, Any], value)


def parse_job(text: str) -> Job:
    """Read the JSON. Raises ValueError: it names the field that is missing or wrong."""
    try:
        parsed: object = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the job on standard input is no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("the job on standard input must be a JSON object")
    given = cast(dict[str, Any], parsed)
    if not given.get("kubeconfig") and not given.get("kubeconfig_path"):
        raise ValueError("the job names no cluster: give kubeconfig or kubeconfig_path")
    if not given.get("owner"):
        raise ValueError("the job's field 'owner' is missing")
    return Job(
        Access(
            str(given.get("kubeconfig") or ""),
            str(given.get("kubeconfig_path") or ""),
            str(given.get("context") or ""),
        ),
        str(given.get("namespace") or ""),
        str(given["owner"]),
        str(given.get("stack") or given["owner"]),
        given,
    )
