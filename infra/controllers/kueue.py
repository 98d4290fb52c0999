"""Controller `kueue`: Kueue (https://kueue.sigs.k8s.io), for the settings `queues` and `queue`.

The digest is that of https://github.com/kubernetes/k8s.io/pull/9856, which published this release
in registry.k8s.io.
"""

import json

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedChart

VERSION = "0.19.2"
IMAGE = "registry.k8s.io/kueue/kueue"
TAG = f"v{VERSION}"
GROUP = "kueue.x-k8s.io"
PLURALS = (
    "admissionchecks",
    "clusterqueues",
    "cohorts",
    "localqueues",
    "multikueueclusters",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
    "workloads",
)
# The kinds of workload of runs that Kueue can hold back. The chart's own list also has pods,
# Deployments and StatefulSets. With that list, Kueue's webhooks would refuse every pod of the
# cluster while Kueue does not answer.
FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "trainer.kubeflow.org/trainjob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/mpijob",
)
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    "integrations": {"frameworks": list(FRAMEWORKS)},
}

KIND = ControllerKind(
    name="kueue",
    title="Kueue",
    version=VERSION,
    source=PinnedChart(
        address="oci://registry.k8s.io/kueue/charts/kueue",
        digest="sha256:ab436c33ef6c6b9b9e95b633e618bca0e0e436d6581d3b27bd12fc8a8026ab34",
        values={
            "controllerManager": {
                "manager": {
                    "image": {"repository": IMAGE, "tag": TAG, "pullPolicy": "IfNotPresent"},
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "256Mi"},
                        "limits": {"memory": "512Mi"},
                    },
                },
                "tolerations": list(TOLERATIONS),
            },
            "managerConfig": {"controllerManagerConfigYaml": json.dumps(CONFIGURATION, indent=1)},
        },
    ),
    namespace="kueue-system",
    groups=(GROUP,),
    definitions=tuple(f"{plural}.{GROUP}" for plural in PLURALS),
    probe={
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "disttrain-trial"},
        "spec": {"namespaceSelector": {}},
    },
)
