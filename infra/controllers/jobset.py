"""Controller `jobset`: JobSet (https://jobset.sigs.k8s.io), for the topology `jobset`.

The digests are those of https://github.com/kubernetes/k8s.io/pull/9456, which published this
release in registry.k8s.io.
"""

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedChart

VERSION = "0.12.0"
IMAGE = "registry.k8s.io/jobset/jobset"
TAG = f"v{VERSION}@sha256:e75536f1135b7bb2f19f8c3b620782fbdd9091d73398e3a272f9a5fed322980d"

KIND = ControllerKind(
    name="jobset",
    title="JobSet",
    version=VERSION,
    source=PinnedChart(
        address="oci://registry.k8s.io/jobset/charts/jobset",
        digest="sha256:02808a890a0b0e03a1d3bf5959e2f562b3b47c15e446bbba358c1d24e1f81b24",
        values={
            "image": {"repository": IMAGE, "tag": TAG, "pullPolicy": "IfNotPresent"},
            "controller": {
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "4Gi"},
                },
                "tolerations": list(TOLERATIONS),
            },
        },
    ),
    namespace="jobset-system",
    groups=("jobset.x-k8s.io",),
    definitions=("jobsets.jobset.x-k8s.io",),
    probe={
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {"replicatedJobs": []},
    },
)
