"""GPT-2's ranks from a bundle, where pods would have tiktoken download them. Pure."""

from typing import Any

from infra.run_settings import DATA_MOUNT
from infra.settings import INCOMING, Settings

VARIABLE = "DISTTRAIN_GPT2_RANKS"  # of trainer/tokenizer.py


def ranks_variables(settings: Settings) -> list[dict[str, str]]:
    """The environment of a container; empty where nothing is bundled."""
    if settings.ranks_file is None:
        return []
    name = settings.ranks_file.incoming.name
    return [{"name": VARIABLE, "value": f"{DATA_MOUNT}/{INCOMING}/{name}"}]


def with_ranks(pod: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The pod with that environment in its container."""
    (container,) = pod["containers"]
    env = [*container["env"], *ranks_variables(settings)]
    return {**pod, "containers": [{**container, "env": env}]}
