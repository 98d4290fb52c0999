"""A throw-away pod that writes text with the newest checkpoint, as a command for people. Pure."""

import json
import shlex

from infra.manifests.names import CLAIM
from infra.manifests.pod import TRAINER_UID
from infra.manifests.ranks import ranks_variables
from infra.run_settings import DATA_MOUNT
from infra.settings import Settings


def sample_arguments(settings: Settings) -> str:
    """Arguments of kubectl, as shell text: works during a training, after it and without one."""
    container = {
        "name": "sample",
        "image": settings.image.plan.reference,
        "imagePullPolicy": "IfNotPresent",
        "args": ["sample", "--run-dir", f"{DATA_MOUNT}/runs/{settings.run.run_name}"],
        "env": [{"name": "HOME", "value": "/tmp"}, *ranks_variables(settings)],
        "volumeMounts": [{"name": "data", "mountPath": DATA_MOUNT, "readOnly": True}],
    }
    overrides = {
        "spec": {
            "containers": [container],
            "securityContext": {"runAsUser": TRAINER_UID, "runAsGroup": TRAINER_UID},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}],
        }
    }
    command = ["-n", settings.namespace, "run", "disttrain-sample", "--rm", "-i", "--quiet"]
    image = ["--restart=Never", f"--image={settings.image.plan.reference}"]
    return shlex.join([*command, *image, f"--overrides={json.dumps(overrides)}"])
