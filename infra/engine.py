"""Looks at Pulumi and at the Python packages, before anything is registered.

A Pulumi that is too old for this program is refused. Packages that are not those of this checkout
are named.
"""

import sys
from importlib.metadata import version
from pathlib import Path

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
_REQUIREMENTS = Path(__file__).parents[1] / "requirements.txt"
_COMPARED = ("kubernetes", "pulumi", "pulumi-command", "pulumi-kubernetes")
"""The packages on which it depends what `pulumi up` does."""


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


def show_other_packages() -> None:
    """Warn of packages in other versions than this checkout is made for.

    They are there when the checkout was updated and `.venv` was not.
    """
    lines = _REQUIREMENTS.read_text().splitlines()
    pins = (line.partition("#")[0].strip().partition("==") for line in lines)
    meant = {name: pin for name, _, pin in pins}
    there = {name: version(name) for name in _COMPARED}
    others = [f"{n} {there[n]} instead of {meant[n]}" for n in _COMPARED if there[n] != meant[n]]
    if others:
        pulumi.log.warn(
            f"packages in {sys.prefix} are not those of this checkout, and may behave differently: "
            f"{', '.join(others)}. After an update of the checkout, bring them up to date before "
            "`pulumi up`: .venv/bin/pip install --require-hashes -r requirements.lock"
        )
