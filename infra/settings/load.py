"""The only place that reads Pulumi's configuration."""

import pulumi
from pulumi.runtime.config import (
    CONFIG,
    get_config_env,
    get_config_secret_keys_env,
    is_config_secret,
)

from infra.settings.project import own_values


def read_configuration() -> tuple[dict[str, str], set[str], str]:
    """Return the configuration of the stack that is being deployed, as Pulumi's engine passes it.

    Returns:
        The values `{key: text}` without the project's prefix, where objects are JSON text; the
        keys whose values are encrypted in the stack's file; and the stack's name.
    """
    everything = {**get_config_env(), **CONFIG.get()}
    raw = own_values(everything, pulumi.get_project())
    secret = {*get_config_secret_keys_env(), *(key for key in everything if is_config_secret(key))}
    secret_keys = set(own_values(dict.fromkeys(secret), pulumi.get_project()))
    return {key: str(value) for key, value in raw.items()}, secret_keys, pulumi.get_stack()
