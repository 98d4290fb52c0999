"""Lets a task that removes something end well although its cluster is gone for good.

The user says so by an environment variable of Pulumi's Kubernetes provider. With this variable the
provider forgets the objects of a cluster that it cannot reach. The tasks have to do the same, or
`pulumi destroy` could never come to its end.
"""

import os

VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
WAY_OUT = (
    f"If the cluster is gone for good, let the stack forget it: {VARIABLE}=true pulumi destroy"
)
PATIENCE_SECONDS = 15.0
"""How long a task tries to reach a cluster that the user has given up."""


def is_given_up() -> bool:
    """Whether the user has set the variable, so that an unreachable cluster is forgotten."""
    return os.environ.get(VARIABLE) == "true"


def forgotten(reason: object) -> str:
    """The message that a task prints instead of an error.

    Args:
        reason: why the cluster could not be used.
    """
    return f"{reason}. {VARIABLE} is true, so what this task would remove there is forgotten"
