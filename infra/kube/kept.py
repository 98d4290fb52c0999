"""Objects that `pulumi destroy` leaves in the cluster, and that the next `pulumi up` uses again.

While the stack is up, these objects have the label of its owner. `destroy` removes this label,
because the next stack of the same name has another owner id. Instead, an annotation then names the
stack to which the objects belonged.
"""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.objects import Json, annotation, label
from infra.kube.say import say

KEPT_ANNOTATION = "disttrain.dev/kept-by"


def kept_by(item: Json) -> str:
    """The stack whose `destroy` has left the object.

    The text is empty if no `destroy` has left the object, or if a stack owns it again.
    """
    return "" if label(item, names.OWNER_LABEL) else annotation(item, KEPT_ANNOTATION)


def leave(api: Api, path: str, owner: str, stack: str, what: str) -> None:
    """Note on an object of this stack that `destroy` has left it.

    Nothing happens if the object is gone or belongs to another owner.

    Args:
        api: the cluster.
        path: the path of the object.
        owner: the owner id of this stack.
        stack: the full name of this stack.
        what: what the object is, such as `claim NAME with the data`, for the message.
    """
    item = api.get(path)
    if item is None or label(item, names.OWNER_LABEL) != owner:
        return
    metadata = {"labels": {names.OWNER_LABEL: None}, "annotations": {KEPT_ANNOTATION: stack}}
    api.patch(path, {"metadata": metadata})
    say(f"{what} stays in the cluster, and the next `pulumi up` of stack {stack} takes it up again")
