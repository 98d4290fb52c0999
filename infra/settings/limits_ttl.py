"""Reads after what time a controller removes the workload of a run that has ended."""

import re
from collections.abc import Mapping

from infra.settings.kinds import Chosen, WorkloadChoice
from infra.settings.reader import Reader

KEY = "ttlSecondsAfterFinished"
LEAST = 60
MOST = 2**31 - 1  # The controllers keep the value in 32 bits.


def read_ttl(reader: Reader, topology: Chosen, kinds: Mapping[str, WorkloadChoice]) -> int | None:
    """Return the time in seconds; None if the workload is not removed.

    Args:
        reader: gives the value and collects the problems with it.
        topology: the chosen kind of workload.
        kinds: the registry of workloads.
    """
    given = reader.text(KEY)
    if not given:
        return None
    if reason := kinds[topology.name].no_ttl_because:
        able = ", ".join(name for name, kind in kinds.items() if not kind.no_ttl_because)
        reader.problem(
            KEY,
            given,
            f"topology is {topology.name}, and {reason}",
            f"Remove it (`pulumi config rm {KEY}`), or set topology to one of {able}",
        )
        return None
    if not re.fullmatch(r"\d{1,10}", given) or int(given) > MOST:
        reader.problem(
            KEY,
            given,
            f"it is not a whole number of seconds from {LEAST} to {MOST}",
            "Set one, such as 86400 for a day, or remove it "
            f"(`pulumi config rm {KEY}`): the workload then stays",
        )
        return None
    if int(given) < LEAST:
        reader.problem(
            KEY,
            given,
            "the workload could be gone before `pulumi up` and ./disttrain status have seen how "
            "the run ended, and its pods' last lines go with it",
            f"Set at least {LEAST}, such as 86400 for a day",
        )
        return None
    return int(given)
