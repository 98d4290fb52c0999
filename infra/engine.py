"""Refuses a Pulumi that is too old for this program, before anything is registered."""

import pulumi
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import monitor_supports_feature

LEAST = "3.215"
"""The oldest version of Pulumi whose engine is known to have everything that the program uses."""
_NEEDED = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_HOOKS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
)


def check_engine() -> None:
    """Check that the engine knows the options of resources that this program uses.

    Pulumi's SDK checks each option only when a resource has it. So with an older engine, `up` would
    make a part of the stack and then end with a traceback.

    Raises:
        pulumi.RunError: the engine is too old.
    """
    if not all(map(monitor_supports_feature, _NEEDED)):
        raise pulumi.RunError(
            f"the program `pulumi` on this machine is too old: this project needs Pulumi {LEAST} "
            "or newer (`pulumi version` shows which one it is). Nothing was changed. Install a "
            "newer one: https://www.pulumi.com/docs/install"
        )
