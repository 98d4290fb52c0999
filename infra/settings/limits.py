"""Reads how long the parts of `up` and the end of a pod may take."""

from dataclasses import dataclass

from infra.settings.reader import Reader


@dataclass(frozen=True)
class LimitSettings:
    """The longest times, in seconds; Pulumi.yaml describes each setting."""

    dataset_timeout_seconds: int
    training_timeout_seconds: int
    termination_grace_seconds: int
    when_busy_timeout_seconds: int


def read_limits(reader: Reader) -> LimitSettings:
    """Read the time limits."""
    return LimitSettings(
        reader.integer("datasetTimeoutSeconds", at_least=10),
        reader.integer("trainingTimeoutSeconds", at_least=10),
        reader.integer("terminationGraceSeconds", at_least=5),
        reader.integer("whenBusyTimeoutSeconds", at_least=10),
    )
