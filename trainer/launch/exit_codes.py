"""How a process of the trainer ends, as the shell and Kubernetes see it."""

from collections.abc import Mapping
from enum import IntEnum

RETRY_VARIABLE = "DISTTRAIN_RETRY_FROM_128"
"""Set where the pod's controller tries again only what ends with a code of 128 or more."""
_CRASHED = 1  # as Python ends a program whose exception nobody has caught


class ExitCode(IntEnum):
    """Documented exit codes; any other code is a crash and may be tried again."""

    DONE = 0
    """The run is finished (or the dataset is there)."""
    RETRYABLE = 75
    """A peer or the network failed: the same command may succeed (EX_TEMPFAIL of sysexits.h)."""
    FATAL = 78
    """Wrong configuration or data, full disk, diverged loss: nothing a retry mends (EX_CONFIG)."""
    PREEMPTED = 143
    """Asked to stop (SIGTERM, SIGINT): saved, and continues when started again (128 + SIGTERM)."""


def pod_exit_code(code: int | None, environment: Mapping[str, str]) -> int:
    """The code with which the process of a pod ends, so that its controller understands it.

    Args:
        code: how the entrypoint ended; None: it crashed.
        environment: of the pod.
    """
    code = _CRASHED if code is None else code
    if not environment.get(RETRY_VARIABLE) or code in (ExitCode.DONE, ExitCode.FATAL):
        return code
    return code if code >= 128 else 128 + code


class FatalError(Exception):
    """Ends the run for good: trying again would fail the same way."""


class RetryableError(Exception):
    """Ends this attempt: trying again may succeed."""
