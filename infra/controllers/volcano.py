"""Controller `volcano`: Volcano (https://volcano.sh), for the topology `volcano`.

Its project publishes one file with all objects. The file of version 1.14.1 uses the images of
version 1.14.0, by their tags.
"""

from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests

VERSION = "1.14.1"
DEFINITIONS = (
    "jobs.batch.volcano.sh",
    "cronjobs.batch.volcano.sh",
    "commands.bus.volcano.sh",
    "podgroups.scheduling.volcano.sh",
    "queues.scheduling.volcano.sh",
    "numatopologies.nodeinfo.volcano.sh",
    "hypernodes.topology.volcano.sh",
    "nodeshards.shard.volcano.sh",
    "colocationconfigurations.config.volcano.sh",
    "jobtemplates.flow.volcano.sh",
    "jobflows.flow.volcano.sh",
)

KIND = ControllerKind(
    name="volcano",
    title="Volcano",
    version=VERSION,
    source=PinnedManifests(
        files=(
            PinnedFile(
                "https://raw.githubusercontent.com/volcano-sh/volcano/"
                f"v{VERSION}/installer/volcano-development.yaml",
                "f6ffcb7558d4c2ffbbb3a537141daeecc3d114e747c273d0db9b933fb38aa182",
            ),
        ),
        change=lambda objects: objects,
    ),
    namespace="volcano-system",
    groups=tuple(dict.fromkeys(name.partition(".")[2] for name in DEFINITIONS)),
    definitions=DEFINITIONS,
    probe={
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {
            "minAvailable": 1,
            "tasks": [
                {
                    "name": "trial",
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "any", "image": "any"}]}},
                }
            ],
        },
    },
    made_by_itself=("Queue default", "Queue root"),
    leaves=("Secret volcano-admission-secret",),  # made with kubectl by a Job of Volcano
)
