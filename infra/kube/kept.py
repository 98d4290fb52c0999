"""Objects that `pulumi destroy` leaves in the cluster, for the next `pulumi up` to take up again.

While a stack is up its owner's label marks them. At the end of `destroy` that label goes, because
the next stack of the same name has another owner, and an annotation says whose they were.
"""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.objects import Json, annotation, label
from infra.kube.say import say

KEPT_ANNOTATION = "disttrain.dev/kept-by"


def kept_by(item: Json) -> str:
    """The stack that has left the object; empty where it is nobody's or somebody's by now."""
    return "" if label(item, names.OWNER_LABEL) else annotation(item, KEPT_ANNOTATION)


def leave(api: Api, path: str, owner: str, stack: str, what: str) -> None:
    """Mark an object of ours as left. One that is gone, or not ours, stays as it is.

    Args:
        api: the cluster.
        path: of the object.
        owner: ours.
        stack: ours, by its full name.
        what: the object, for the message.
    """
    item = api.get(path)
    if item is None or label(item, names.OWNER_LABEL) != owner:
        return
    marks = {"labels": {names.OWNER_LABEL: None}, "annotations": {KEPT_ANNOTATION: stack}}
    api.patch(path, {"metadata": marks})
    say(f"{what} stays in the cluster, and the next `pulumi up` of stack {stack} takes it up again")
