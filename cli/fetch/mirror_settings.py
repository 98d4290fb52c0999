"""Which mirror a stack's run has, and with which credentials it is read."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from infra.settings.project import raw_settings, stack_file

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
OWN_WAYS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""With one of these in the environment, the user has credentials of his own."""


@dataclass(frozen=True)
class Mirror:
    """Where checkpoints are mirrored, and what reads them.

    Args:
        url: as run.checkpoint.mirror has it, such as s3://bucket/prefix.
        run_name: of the stack's own run; empty where there is no stack.
        environment: variables that this process lacks for it.
    """

    url: str
    run_name: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def use(self) -> None:
        """Set the variables in this process, from which the library reads them."""
        os.environ.update(self.environment)


def is_s3(url: str) -> bool:
    """Whether the store is one that takes S3's credentials."""
    return url.startswith(("s3://", "s3a://"))


def has_credentials(environment: Mapping[str, str]) -> bool:
    """Whether the user has credentials of his own, to which none of others may be added."""
    return any(environment.get(name) for name in OWN_WAYS)


def mirror_of_stack(
    stack: str,
    environment: Mapping[str, str],
    shown: Callable[[str], Mapping[str, str]],
    url: str = "",
) -> Mirror | None:
    """The mirror that the settings of a stack name; None where they name none.

    Args:
        stack: its name.
        environment: of the user. Credentials there are taken before those of the stack.
        shown: reads the stack's encrypted settings; called only where they are needed.
        url: an address in place of that of the settings.

    Raises:
        ValueError: there is no such stack, or its settings cannot be read.
    """
    raw, encrypted = raw_settings(stack_file(stack.rpartition("/")[2]))
    values = dict(raw)
    if "run" in encrypted:
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
    """What the run's pods have for the store and the environment lacks. Pure.

    Args:
        values: the stack's settings.
        environment: of the user.
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
    """Raises ValueError: the setting is no object."""
    try:
        return dict(json.loads(values.get(key) or "{}"))
    except (ValueError, TypeError):
        raise ValueError(
            f"{key}: it cannot be read, because it is no object. Correct it in the stack's file"
        ) from None
