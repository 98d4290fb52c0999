"""Lets a task that removes something end without an error if its cluster is gone for good.

The user declares the cluster gone with an environment variable of Pulumi's Kubernetes provider. If
this variable is `true`, the provider forgets the objects of a cluster that it cannot reach. The
tasks have to do the same, or `pulumi destroy` could never succeed.
"""

import os

VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
WAY_OUT = (
    f"If the cluster is gone for good, let the stack forget it: {VARIABLE}=true pulumi destroy"
)
PATIENCE_SECONDS = 15.0
"""How long a guard tries to reach its cluster.

If the user has declared the cluster gone, every task tries only for so long.
"""


def is_given_up() -> bool:
    """Whether the user has set the variable, so that an unreachable cluster is forgotten."""
    return os.environ.get(VARIABLE) == "true"


def forgotten(reason: object) -> str:
    """The message that a task prints instead of an error.

    Args:
        reason: why the cluster could not be used.
    """
    return f"{reason}. {VARIABLE} is true, so what this task would remove there is forgotten"
