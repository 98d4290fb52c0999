"""Prints as JSON what a user of Kubeflow's Python library sees of a TrainJob.

The virtualenv `.venv-kubeflow` runs the file. Its arguments are a kubeconfig, a namespace and the
TrainJob's name.
"""

import json
import sys

from kubeflow.common.types import KubernetesBackendConfig  # pyright: ignore[reportMissingImports]
from kubeflow.trainer import TrainerClient  # pyright: ignore[reportMissingImports]


def main(kubeconfig: str, namespace: str, name: str) -> None:
    backend = KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace)
    client = TrainerClient(backend)
    job = client.get_job(name)
    seen = {
        "jobs": [each.name for each in client.list_jobs()],
        "status": job.status,
        "nodes": job.num_nodes,
        "pods": {step.name: [step.pod_name, step.status] for step in job.steps},
        "log": list(client.get_job_logs(name)),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
