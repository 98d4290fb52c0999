"""Says to whom an object belongs that this stack has not made."""

from infra.kube import names
from infra.kube.objects import Json, label


def is_foreign(item: Json, owner: str) -> bool:
    """Whether an object does not belong to the stack with this owner id. This function is pure.

    Before its first `pulumi up` a stack has no owner id yet. Then every object is foreign, also one
    without an owner.
    """
    return not owner or label(item, names.OWNER_LABEL) != owner


def belongs(item: Json) -> str:
    """The end of a sentence about a foreign object, such as `was not made by this stack`.

    Two stacks may have one name, if their states are in different backends. So the owner id is
    named too. This function is pure.
    """
    owner, stack = label(item, names.OWNER_LABEL), label(item, names.STACK_LABEL)
    if not (owner or stack):
        return "was not made by this stack"
    named = f" named {stack}" if stack else ""
    by = f" (owner {owner})" if owner else ""
    return f"belongs to another stack{named}{by}, perhaps a colleague's"
