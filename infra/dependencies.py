"""What a component passes on to its children: the resources that they have to wait for."""

from collections.abc import Sequence
from typing import Any, cast

import pulumi


def dependencies(opts: pulumi.ResourceOptions | None) -> list[Any]:
    """The resources in the option `depends_on` of a component.

    The engine makes only the component itself wait for them. Each child that has to wait needs
    them in its own `depends_on`.
    """
    given: Any = opts.depends_on if opts else None
    if given is None:
        return []
    if isinstance(given, list | tuple):
        return list(cast(Sequence[Any], given))
    return [given]


def child_options(
    component: pulumi.ComponentResource, opts: pulumi.ResourceOptions | None
) -> pulumi.ResourceOptions:
    """The options of a child that waits for what the component waits for.

    Args:
        component: the component.
        opts: the component's own options.
    """
    return pulumi.ResourceOptions(parent=component, depends_on=dependencies(opts))
