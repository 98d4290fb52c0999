"""What every pod of ours has: image, user, volumes, proxy. Pure: Kubernetes objects as dicts."""

from pathlib import PurePosixPath
from typing import Any

from infra.manifests.names import CLAIM, PROXY_CONFIG, RUN_CONFIG_PATH
from infra.run_settings import DATA_MOUNT

TRAINER_UID = 1000
CA_FILE = "/etc/disttrain-ca/ca.crt"
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")  # of Python's ssl and of requests


def pod_spec(image: str, config_map: str, arguments: list[str]) -> dict[str, Any]:
    """A pod with one container that runs `python -m trainer <arguments>`.

    Args:
        image: full name.
        config_map: holds `run.yaml`.
        arguments: the trainer's command and options; the configuration's path is added.
    """
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": TRAINER_UID,
            "runAsGroup": TRAINER_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "trainer",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "args": [*arguments, "--config", RUN_CONFIG_PATH],
                "env": [{"name": "HOME", "value": "/tmp"}],
                # the Secret has the addresses of proxies with a password
                "envFrom": [
                    {"configMapRef": {"name": PROXY_CONFIG}},
                    {"secretRef": {"name": PROXY_CONFIG}},
                ],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                # what `up` shows when it fails
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "data", "mountPath": DATA_MOUNT},
                    {
                        "name": "config",
                        "mountPath": str(PurePosixPath(RUN_CONFIG_PATH).parent),
                        "readOnly": True,
                    },
                ],
            }
        ],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}},
            {"name": "config", "configMap": {"name": config_map}},
        ],
    }


def trust(pod: dict[str, Any], config_map: str) -> dict[str, Any]:
    """The pod with the authorities of a ConfigMap (key `ca.crt`) trusted in its container."""
    (container,) = pod["containers"]
    folder = str(PurePosixPath(CA_FILE).parent)
    mount = {"name": "ca", "mountPath": folder, "readOnly": True}
    variables = [{"name": name, "value": CA_FILE} for name in CA_VARIABLES]
    container = {
        **container,
        "env": [*container["env"], *variables],
        "volumeMounts": [*container["volumeMounts"], mount],
    }
    volume = {"name": "ca", "configMap": {"name": config_map}}
    return {**pod, "containers": [container], "volumes": [*pod["volumes"], volume]}
