"""Finds the mirror of a stack's run, and the credentials for reading it."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from infra.settings.project import names_environments, raw_settings, stack_file

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
OWN_WAYS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables of the environment. If one of them is set, the user has credentials of their own."""


@dataclass(frozen=True)
class Mirror:
    """A mirror, and what is needed to read it.

    Args:
        url: the address, as in run.checkpoint.mirror, such as s3://bucket/prefix.
        run_name: the name of the stack's own run; empty if no stack is known.
        environment: variables for the store that this process lacks.
    """

    url: str
    run_name: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def use(self) -> None:
        """Set the variables in the environment of this process, where the library reads them."""
        os.environ.update(self.environment)


def is_s3(url: str) -> bool:
    """Whether the address is of a store that needs credentials for S3."""
    return url.startswith(("s3://", "s3a://"))


def has_credentials(environment: Mapping[str, str]) -> bool:
    """Whether the user has credentials of their own, with which the stack's are not mixed."""
    return any(environment.get(name) for name in OWN_WAYS)


def mirror_of_stack(
    stack: str,
    environment: Mapping[str, str],
    shown: Callable[[str], Mapping[str, str]],
    url: str = "",
) -> Mirror | None:
    """Return the mirror that the settings of a stack name; None if they name none.

    Args:
        stack: the name of the stack.
        environment: the user's environment. Its credentials have precedence over the stack's.
        shown: reads the stack's settings by Pulumi, which can decrypt them. It is called only if
            encrypted ones are needed, or settings may come from environments of Pulumi ESC.
        url: an address that replaces the one in the settings; empty to use that one.

    Raises:
        ValueError: there is no such stack, or its settings cannot be read.
    """
    file = stack_file(stack.rpartition("/")[2])
    raw, encrypted = raw_settings(file)
    values = dict(raw)
    if "run" in encrypted or names_environments(file):
        values |= shown(stack)
    url = url or _address(values)
    if not url:
        return None
    name = values.get("runName") or stack.rpartition("/")[2]
    if not is_s3(url):
        return Mirror(url, name)
    wanted = {"podEnvironment", *(() if has_credentials(environment) else ("podSecrets",))}
    if encrypted & wanted:
        values |= shown(stack)
    return Mirror(url, name, missing_variables(values, environment))


def missing_variables(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the store that the run's pods have and the user's environment lacks.

    This function is pure.

    Args:
        values: the stack's settings.
        environment: the user's environment.
    """
    pods = {**_object(values, "podEnvironment"), **_object(values, "podSecrets")}
    has_own = has_credentials(environment)
    return {
        name: str(value)
        for name, value in pods.items()
        if name.startswith("AWS_")
        and not environment.get(name)
        and not (has_own and name in CREDENTIALS)
    }


def _address(values: Mapping[str, str]) -> str:
    checkpoint: object = _object(values, "run").get("checkpoint")
    if not isinstance(checkpoint, Mapping):
        return ""
    return str(cast(Mapping[str, Any], checkpoint).get("mirror") or "")


def _object(values: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return a setting that is a JSON object; empty if it is not set.

    Raises ValueError if it is no object.
    """
    try:
        return dict(json.loads(values.get(key) or "{}"))
    except (ValueError, TypeError):
        raise ValueError(
            f"{key}: it cannot be read, because it is no object. Correct it in the stack's file"
        ) from None
