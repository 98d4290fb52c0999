"""Run configurations as immutable ConfigMaps whose names carry their content. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

from infra.labels import content_hash, metadata
from infra.settings import Settings


def config_map_name(prefix: str, configuration: Mapping[str, Any]) -> str:
    """`<prefix>-<hash>`; pods that name it are made anew when the content changes."""
    return f"{prefix}-{content_hash(configuration)}"


def config_map(
    settings: Settings, name: str, component: str, configuration: Mapping[str, Any]
) -> dict[str, Any]:
    """Holds the configuration as `run.yaml`."""
    return {
        "metadata": metadata(name, settings.namespace, component, settings.stack),
        "immutable": True,
        "data": {"run.yaml": yaml.safe_dump(dict(configuration), sort_keys=False)},
    }
