"""Finds out whether a cluster is the one that holds this stack's objects. It changes nothing."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.objects import part

Answer: TypeAlias = Literal["ours", "another", "unseen"]


def whose_cluster(api: Api, uids: Mapping[str, str]) -> Answer:
    """Look for this stack's objects in a cluster by their uids, which differ between clusters.

    One object that is there is enough, because the user may have deleted some of them by hand.

    Args:
        api: the cluster.
        uids: the uids of this stack's objects, by the objects' paths.

    Returns:
        `ours`: at least one object is there. `unseen`: these credentials may not read any of the
        objects. `another`: none of the objects that they may read is there.

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
