"""The dependencies that a component passes on to its children."""

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
