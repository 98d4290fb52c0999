"""Shares one platform that is up on the test host among the tests that do not change it.

Bringing it up takes longer than most of these tests. If a test destroys the platform, or leaves it
in another state, the next test gets a new one. No test depends on what another test did.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from infra.node.k3s_observation import observe_k3s
from sandbox.stack import Stack
from tests.node.lab import Lab

USER = "deploy"
NOTED_REPAIR = "awk '$1 == \"repair\" { print $2 }' /etc/rancher/disttrain"


@dataclass(frozen=True)
class Platform:
    """A stack that is up. It logs in as USER, whose sudo needs no password, and uses a tunnel."""

    lab: Lab
    stack: Stack


class Standing:
    """Keeps the platform from one test to the next."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._kept: Stack | None = None
        self._is_bare = True
        self._settings = ""
        self._resources: list[str] = []

    @contextmanager
    def use(self) -> Iterator[Platform]:
        """Yield a platform that is up and unchanged.

        The platform is kept for the next test if it is still unchanged after the block.
        """
        stack = self._kept or self._up()
        self._kept, self._is_bare = None, False
        yield Platform(self._lab, stack)
        if self._is_unchanged(stack):
            self._kept = stack

    def drop(self) -> None:
        """Remove the platform from the host, if one is there."""
        if self._is_bare:
            return
        self._lab.clean()
        self._kept, self._is_bare = None, True
        assert self._lab.differences() == [], "the tests on the platform left the host changed"

    def _up(self) -> Stack:
        self.drop()
        self._is_bare = False
        stack = self._lab.stack(USER, clusterAccess="tunnel")
        stack.up()
        self._settings = stack.settings_file.read_text()
        self._resources = self._lab.resources(stack)
        return stack

    def _is_unchanged(self, stack: Stack) -> bool:
        """Return whether settings, state and k3s are as `pulumi up` left them."""
        settings = stack.settings_file
        if not settings.exists() or settings.read_text() != self._settings:
            return False
        if self._lab.resources(stack) != self._resources:
            return False
        found = observe_k3s(self._lab.access)
        noted = self._lab.host.try_shell(NOTED_REPAIR).stdout.strip()
        return not found.problem and found.repair_id == noted
