"""k3s' registries.yaml: what the setting k3sRegistries says, and the registry that nodes share."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pulumi

from infra.settings.secret import Secret

# This line changes the file whenever the embedded registry is switched on, even if the user already
# had an entry for the host. A changed file restarts k3s, and an agent asks only when it starts
# whether the server has that registry.
NOTE = "# k3s' embedded registry: nodes give each other the images of {host}"


def registries(own: Secret | None, shared: str) -> pulumi.Input[str]:
    """The text of registries.yaml; empty: there is no such file.

    Args:
        own: the setting k3sRegistries, as JSON text.
        shared: of PlatformSettings, `shared_registry`.
    """
    if not shared:
        return own.output if own else ""
    text = with_shared(own.text if own else "{}", shared)
    return pulumi.Output.secret(text) if own else text


def with_shared(own: str, shared: str) -> str:
    """The user's registries and an entry for the shared one; JSON is YAML too."""
    content = cast(Mapping[str, Any], json.loads(own))
    # without endpoints: k3s puts its own in front, and that is all there is to ask
    own_mirrors = cast(Mapping[str, object], content.get("mirrors") or {})
    mirrors: dict[str, object] = {**own_mirrors, shared: {}}
    text = json.dumps({**content, "mirrors": mirrors}, indent=2, sort_keys=True)
    return f"{NOTE.format(host=shared)}\n{text}"
