"""What a task that removes something does where its cluster is gone for good.

The variable is that of Pulumi's Kubernetes provider, which forgets the objects of a cluster that it
cannot reach. The tasks have to do the same, or `pulumi destroy` never comes to the end.
"""

import os

VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
WAY_OUT = (
    f"If the cluster is gone for good, let the stack forget it: {VARIABLE}=true pulumi destroy"
)
PATIENCE_SECONDS = 15.0
"""How long a task waits for an answer of a cluster that is said to be gone."""


def is_given_up() -> bool:
    """Whether the user has said that what cannot be reached is to be forgotten."""
    return os.environ.get(VARIABLE) == "true"


def forgotten(reason: object) -> str:
    """What is said instead of an error."""
    return f"{reason}. {VARIABLE} is true, so what this task would remove there is forgotten"
