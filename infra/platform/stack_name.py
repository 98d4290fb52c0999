"""Converts names of stacks: the full name for a StackReference, a short one for messages."""

import pulumi


def full_stack_name(stack: str) -> str:
    """The name as `organization/project/stack`. A name that is already full stays as it is."""
    if "/" in stack:
        return stack
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


def shown_stack_name(stack: str) -> str:
    """The name for messages and commands, such as `pulumi destroy --stack NAME`.

    It is the full name, except on file backends: their organization is always "organization", and
    the name alone is enough.
    """
    return full_stack_name(stack).removeprefix(f"organization/{pulumi.get_project()}/")
