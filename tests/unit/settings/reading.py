"""Reads the settings of a real stack file, with changes."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
import pytest

from infra.kinds import KINDS
from infra.settings import PlatformSettings, RunSettings, Settings, parse_settings
from tests.unit.stacks import raw_settings

SSH = {"host": "ssh", "sshHost": "node", "sshHostKey": "ssh-ed25519 AAAA"}
PROXY = {"httpProxy": "http://proxy.corp.example:3128", "nodeAddress": "10.1.2.3"}


def read(
    changes: Mapping[str, Any] | None = None, secret_keys: Iterable[str] = (), stack: str = "dev"
) -> Settings:
    """Return the settings of the stack with these changes."""
    return parse_settings(raw_settings(stack, changes), secret_keys, stack, KINDS)


def platform(
    changes: Mapping[str, Any] | None = None, secret_keys: Iterable[str] = (), stack: str = "dev"
) -> PlatformSettings:
    """Return the settings of the stack's own platform."""
    return read(changes, secret_keys, stack).own_platform


def run(changes: Mapping[str, Any] | None = None, stack: str = "dev") -> RunSettings:
    """Return the settings of the stack's run."""
    settings = read(changes, (), stack).run
    assert settings is not None
    return settings


def refusal(changes: Mapping[str, Any], secret_keys: Iterable[str] = (), stack: str = "dev") -> str:
    """Return the error with which these settings are refused, or fail if they are accepted."""
    with pytest.raises(pulumi.RunError) as failure:
        read(changes, secret_keys, stack)
    return str(failure.value)
