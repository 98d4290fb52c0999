"""Chooses the kind of workload where the setting `topology` is `auto`. Pure functions."""

import json
from collections.abc import Mapping
from typing import Any, cast

AUTO = "auto"
ONE_POD, SEVERAL_PODS = "single-pod", "indexed-job"


def with_choices_made(raw: Mapping[str, str], machines: int = 0) -> dict[str, str]:
    """Return the raw settings, with `topology: auto` replaced by a kind of workload.

    With further machines, or if `pods` is more than one, the run is a Job with several pods. A
    StatefulSet would wait for ever for a pod on a lost machine
    (https://github.com/kubernetes/kubernetes/issues/55713).

    Args:
        raw: `{key: text}` without the project's prefix; objects are JSON text.
        machines: number of the platform's machines, if another stack owns it. With 0, the machines
            of the setting `nodes` are counted.
    """
    made = dict(raw)
    if made.get("topology") == AUTO:
        more = machines - 1 if machines else further_machines(raw.get("nodes", ""))
        pods = made.get("pods", "")
        several = more or (pods.isdecimal() and pods.lstrip("0") not in ("", "1"))
        made["topology"] = SEVERAL_PODS if several else ONE_POD
    return made


def further_machines(nodes: str) -> int:
    """Count the machines in the setting `nodes` that are not lost; 0 if it cannot be read.

    Problems of the setting are reported by `infra.settings.nodes`, and not here.
    """
    try:
        found: object = json.loads(nodes or "[]")
    except ValueError:
        return 0
    items = cast(list[Any], found) if isinstance(found, list) else []
    return sum(
        isinstance(item, dict) and not cast(Mapping[str, Any], item).get("gone") for item in items
    )
