"""The exit codes of the trainer's processes, and the exceptions that lead to them."""

from collections.abc import Mapping
from enum import IntEnum

RETRY_VARIABLE = "DISTTRAIN_RETRY_FROM_128"
"""Set if the pod's controller restarts a pod only if its exit code is 128 or more."""
_CRASHED = 1  # the exit code of a Python program that ends by an exception


class ExitCode(IntEnum):
    """Documented exit codes; any other code is a crash, after which a retry may succeed."""

    DONE = 0
    """The run is finished (or the dataset is there)."""
    RETRYABLE = 75
    """A peer or the network failed: the same command may succeed (EX_TEMPFAIL of sysexits.h)."""
    FATAL = 78
    """Wrong configuration or data, full disk, diverged loss: nothing a retry mends (EX_CONFIG)."""
    PREEMPTED = 143
    """Asked to stop (SIGTERM, SIGINT): saved, and continues when started again (128 + SIGTERM)."""


def pod_exit_code(code: int | None, environment: Mapping[str, str]) -> int:
    """Return the exit code for a pod's process that its controller understands.

    Args:
        code: The exit code of the entrypoint; None if it crashed.
        environment: The environment variables of the pod.
    """
    code = _CRASHED if code is None else code
    if not environment.get(RETRY_VARIABLE) or code in (ExitCode.DONE, ExitCode.FATAL):
        return code
    return code if code >= 128 else 128 + code


class FatalError(Exception):
    """Ends the run for good: trying again would fail the same way."""


class RetryableError(Exception):
    """Ends this attempt: trying again may succeed."""
