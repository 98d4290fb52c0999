"""Which of the further machines are servers, as the first one is, and how many there may be.

Servers keep the cluster's data together, in k3s' embedded etcd: it works as long as more than half
of them do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from infra.settings.cluster import ClusterSettings
from infra.settings.reader import Reader

Role: TypeAlias = Literal["agent", "server"]
ROLES = ("agent", "server")
# An older k3s would begin with empty data where the one server of before is to get etcd:
# https://docs.k3s.io/datastore/ha-embedded
FIRST_MIGRATING = (1, 22, 2)


def read_role(reader: Reader, where: str, given: Mapping[str, Any]) -> Role:
    """The role of an item of the list; another text is left with `reader`."""
    role = given.get("role", "agent")
    if role not in ROLES:
        reader.problem(f"{where}.role", role, "it is no role", f"Use one of {', '.join(ROLES)}")
    return cast(Role, role)


def check_servers(reader: Reader, key: str, gone: Sequence[bool], cluster: ClusterSettings) -> None:
    """Refuse a number of servers with which a lost one costs more than it would with fewer.

    Args:
        reader: for the problems.
        key: of the list.
        gone: for each machine of the list that is a server, whether it is lost.
        cluster: which Kubernetes.
    """
    if not gone:
        return
    # A lost one may stand in the list until another one has taken its place.
    there, listed = 1 + gone.count(False), 1 + len(gone)
    if there % 2 == 0 and listed % 2 == 0:
        fewer, more = there - 1, there + 1
        reason = (
            f"it makes {there} servers, which survive the loss of no more machines than {fewer} "
            "would: etcd works only while more than half of its servers work"
        )
        hint = (
            f"Set role: server on as many as make {fewer} or {more} with the first machine; a "
            "lost server stays in the list with gone: true until another one takes its place"
        )
        reader.problem(key, f"{len(gone)} with role: server", reason, hint)
    version = tuple(int(part) for part in re.findall(r"\d+", cluster.k3s.version)[:3])
    if version < FIRST_MIGRATING:
        first = ".".join(map(str, FIRST_MIGRATING))
        reader.problem(
            "k3sVersion",
            cluster.k3s.version,
            f"several servers need k3s v{first} or newer: an older one loses the cluster's "
            "objects when it gets etcd",
            "Set a newer release",
        )
