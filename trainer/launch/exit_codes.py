"""How a process of the trainer ends, as the shell and Kubernetes see it."""

from enum import IntEnum


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


class FatalError(Exception):
    """Ends the run for good: trying again would fail the same way."""


class RetryableError(Exception):
    """Ends this attempt: trying again may succeed."""
