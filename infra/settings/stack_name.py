"""Checks the name of the stack, which is part of its objects in the cluster."""

from infra.settings.pod_labels import is_value
from infra.settings.reader import Reader

NAME_OF_STACK = "name of the stack"
"""Stands in messages where they otherwise have the key of a setting."""


def check_stack_name(reader: Reader, stack: str) -> None:
    """Refuse a stack's name that cannot be the value of a label, because it is one on objects."""
    if not (stack and is_value(stack)):
        reader.problem(
            NAME_OF_STACK,
            stack,
            "it is a label of Kubernetes objects, which this text cannot be",
            "Make a stack whose name has at most 63 letters, digits, '.', '_' and '-' that begins "
            "and ends with a letter or a digit",
        )
