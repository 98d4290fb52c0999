"""What the setting `topology` is where it is left to this program. Pure."""

import json
from collections.abc import Mapping
from typing import Any, cast

AUTO = "auto"
ONE_POD, SEVERAL_PODS = "single-pod", "indexed-job"


def with_choices_made(raw: Mapping[str, str], machines: int = 0) -> dict[str, str]:
    """The raw settings with a value for `topology: auto`.

    With further machines, or with `pods` of more than one, the run is a Job with several pods. A
    StatefulSet would wait for ever for a pod on a lost machine
    (https://github.com/kubernetes/kubernetes/issues/55713).

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        machines: of the platform that another stack owns; 0: `nodes` says them.
    """
    made = dict(raw)
    if made.get("topology") == AUTO:
        more = machines - 1 if machines else further_machines(raw.get("nodes", ""))
        several = more or made.get("pods", "0") not in ("0", "1")
        made["topology"] = SEVERAL_PODS if several else ONE_POD
    return made


def further_machines(nodes: str) -> int:
    """How many machines the setting lists that are not lost; 0 where it cannot be read.

    What is wrong with it is said where the setting is read.
    """
    try:
        found: object = json.loads(nodes or "[]")
    except ValueError:
        return 0
    items = cast(list[Any], found) if isinstance(found, list) else []
    return sum(
        isinstance(item, dict) and not cast(Mapping[str, Any], item).get("gone") for item in items
    )
