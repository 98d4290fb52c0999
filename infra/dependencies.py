"""What a component's children wait for."""

from collections.abc import Sequence
from typing import Any, cast

import pulumi


def dependencies(opts: pulumi.ResourceOptions | None) -> list[Any]:
    """The resources that a component was told to depend on.

    The engine lets the component wait for them, but not its children: each child has to be told.
    """
    given: Any = opts.depends_on if opts else None
    if given is None:
        return []
    if isinstance(given, list | tuple):
        return list(cast(Sequence[Any], given))
    return [given]
