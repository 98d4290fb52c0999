"""The single-pod topology: one Job whose pod holds all ranks. Pure."""

from typing import Any

from infra.labels import metadata
from infra.manifests.names import SINGLE_POD_JOB
from infra.manifests.training_pod import (
    TRAINING,
    training_revision,
    training_template,
    with_revision,
)
from infra.settings import Settings

FATAL_EXIT_CODE = 78  # trainer/exit_codes.py: nothing that a retry mends
PREEMPTED_EXIT_CODE = 143  # asked to stop; has saved
BACKOFF_LIMIT = 6


def single_pod_job(settings: Settings, config_map: str) -> dict[str, Any]:
    """Not waited for by the provider: a training outlasts any `up` (await-training.sh waits)."""
    revision = training_revision(settings, config_map)
    template = with_revision(training_template(settings, config_map), revision)
    template["spec"] = {**template["spec"], "restartPolicy": "Never"}
    return {
        "metadata": metadata(
            SINGLE_POD_JOB,
            settings.namespace,
            TRAINING,
            settings.stack,
            revision,
            {"pulumi.com/skipAwait": "true"},
        ),
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            # a new pod only when the old one has ended: two would write the same run
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    _on_exit_code(FATAL_EXIT_CODE, "FailJob"),
                    _on_exit_code(PREEMPTED_EXIT_CODE, "Ignore"),
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                ]
            },
            "template": template,
        },
    }


def _on_exit_code(code: int, action: str) -> dict[str, Any]:
    return {
        "action": action,
        "onExitCodes": {"containerName": "trainer", "operator": "In", "values": [code]},
    }
