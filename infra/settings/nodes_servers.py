"""Reads which further machines are servers, as the first one is, and checks their number.

The servers hold the cluster's data in k3s' embedded etcd. It works as long as more than half of
the servers work.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from infra.settings.cluster import ClusterSettings
from infra.settings.gpu_regime import k3s_version
from infra.settings.reader import Reader
from infra.settings.similar_names import did_you_mean

Role: TypeAlias = Literal["agent", "server"]
ROLES = ("agent", "server")
# First release of each minor version of k3s whose servers have the condition EtcdIsVoter. The
# scripts k3s-member.sh and k3s-install.sh wait for this condition:
# https://github.com/k3s-io/k3s/pull/8724 and its backports.
FIRST_WITH_VOTERS: dict[tuple[int, ...], tuple[int, ...]] = {
    (1, 26): (1, 26, 11),
    (1, 27): (1, 27, 8),
    (1, 28): (1, 28, 4),
}


def read_role(reader: Reader, where: str, given: Mapping[str, Any]) -> Role:
    """Read the role of an item of the list. An unknown role is noted as a problem."""
    role = given.get("role", "agent")
    if role not in ROLES:
        reason = f"it is no role{did_you_mean(role, ROLES)}"
        reader.problem(f"{where}.role", role, reason, f"Use one of {', '.join(ROLES)}")
    return cast(Role, role)


def check_servers(reader: Reader, key: str, gone: Sequence[bool], cluster: ClusterSettings) -> None:
    """Refuse an even number of servers, which survives no more losses than one server less.

    Args:
        reader: collects the problems that are found.
        key: key of the list.
        gone: for each server in the list, whether it is lost.
        cluster: settings of the cluster, with the version of k3s. An empty version has been refused
            before.
    """
    if not gone:
        return
    # A lost server may stay in the list until another one has taken its place. So the number is
    # refused only if it is even both with and without the lost servers.
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
    version = k3s_version(cluster.k3s.version)
    if version and not _tells_voters(version):
        *older, newest = ("v" + ".".join(map(str, each)) for each in FIRST_WITH_VOTERS.values())
        reader.problem(
            "k3sVersion",
            cluster.k3s.version,
            f"several servers need k3s {', '.join(older)}, {newest} or a newer minor: an older one "
            "does not say which servers vote in etcd, and pulumi up would wait for that in vain",
            "Set a newer release",
        )


def _tells_voters(k3s: tuple[int, ...]) -> bool:
    """Whether this k3s reports for each server whether it votes in etcd."""
    minor = k3s[:2]
    first = FIRST_WITH_VOTERS.get(minor)
    return k3s >= first if first else minor > max(FIRST_WITH_VOTERS)
