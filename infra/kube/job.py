"""The job of a task: the JSON object that `python -m infra.kube` reads from standard input."""

import json
from dataclasses import dataclass
from typing import Any, cast

from infra.kube.api_server.access import Access


@dataclass(frozen=True)
class Job:
    """The fields that the jobs of all tasks have. `fields` holds all fields of the job."""

    access: Access
    namespace: str
    owner: str
    stack: str
    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """The value of a field that must hold text. Raises ValueError: the value is no text."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be text")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """The value of a field that must hold a whole number.

        If the job lacks the field, the value is `default`.

        Raises ValueError: the value is not a whole number.
        """
        value = self.fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a whole number")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of texts in a field; empty where the job lacks the field.

        Raises ValueError: the field holds something else than a list.
        """
        value: object = self.fields.get(name) or []
        if not isinstance(value, list):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a list")
        return [str(entry) for entry in cast(list[object], value)]

    def mappings(self, name: str) -> list[dict[str, Any]]:
        """The list of JSON objects in a field, or the one object as a list.

        The list is empty where the job lacks the field. Raises ValueError: the field holds
        something else.
        """
        value: object = self.fields.get(name) or []
        items = cast(list[object], value) if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in items):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must list JSON objects")
        return cast(list[dict[str, Any]], items)

    def mapping(self, name: str) -> dict[str, Any]:
        """The JSON object in a field; empty where the job lacks the field.

        Raises ValueError: the field holds something else.
        """
        value: object = self.fields.get(name) or {}
        if not isinstance(value, dict):
            raise ValueError(f"the job's field {name!r} is {value!r}; it must be a JSON object")
        return cast(dict[str, Any], value)


def parse_job(text: str) -> Job:
    """Read a job from JSON. Raises ValueError, which names the field that is missing or wrong."""
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
