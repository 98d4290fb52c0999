"""Whether a cluster is the one in which this stack's objects are: asks, and changes nothing."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.objects import part

Answer: TypeAlias = Literal["ours", "another", "unseen"]


def whose_cluster(api: Api, uids: Mapping[str, str]) -> Answer:
    """Look for objects by their uids, which no two clusters have in common.

    One of them is enough: others may have been deleted by hand.

    Args:
        api: the cluster.
        uids: those of the objects, by their paths.

    Returns:
        `unseen` where these credentials may look at none of them.

    Raises:
        ApiError, UnreachableError: the cluster gives no answer.
    """
    answer: Answer = "unseen"
    for path, uid in uids.items():
        item = object_at(api, path)
        if item == "unseen":
            continue
        if item is not None and part(item, "metadata").get("uid") == uid:
            return "ours"
        answer = "another"
    return answer
