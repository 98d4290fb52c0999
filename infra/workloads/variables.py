"""Variables in the form of a container's field `env`. All functions are pure."""

from collections.abc import Mapping, Sequence
from typing import Any


def environment(variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Variables in the form of a container's field `env`."""
    return [{"name": name, "value": value} for name, value in variables.items()]


def with_own_variables(
    usual: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The variables that pods usually have, and those that replace them, each name once.

    The API server refuses two variables of the same name in a JobSet, and in every object that
    Pulumi changes in its place. Python's getpass reads LOGNAME before USER, so a USER in `own` also
    replaces LOGNAME.

    Args:
        usual: the variables that pods usually have.
        own: the variables that win.
    """
    names = {variable["name"] for variable in own}
    replaced = names | {"LOGNAME"} if "USER" in names else names
    return [*(variable for variable in usual if variable["name"] not in replaced), *own]
