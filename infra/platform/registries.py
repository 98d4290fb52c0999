"""Makes k3s' registries.yaml from the setting k3sRegistries and the registry that nodes share."""

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
        own: the setting k3sRegistries, as JSON text; None: it is not set.
        shared: `shared_registry` of PlatformSettings; empty: nodes share none.
    """
    if not shared:
        return own.output if own else ""
    text = with_shared(own.text if own else "{}", shared)
    return pulumi.Output.secret(text) if own else text


def with_shared(own: str, shared: str) -> str:
    """The user's registries, and an entry for the shared one, as JSON, which is also YAML."""
    content = cast(Mapping[str, Any], json.loads(own))
    # The entry has no endpoints: k3s adds its own in front, and no other has to be asked.
    own_mirrors = cast(Mapping[str, object], content.get("mirrors") or {})
    mirrors: dict[str, object] = {**own_mirrors, shared: {}}
    text = json.dumps({**content, "mirrors": mirrors}, indent=2, sort_keys=True)
    return f"{NOTE.format(host=shared)}\n{text}"
