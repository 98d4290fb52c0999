"""Workload `lws`: a LeaderWorkerSet with one group of pods, whose leader is node 0.

Its controller makes a StatefulSet with the leader, and a second one with the workers when the
leader's pod exists. So the names of the pods end with the ranks of the nodes, and the pods stay
when the run is finished, like those of `multi-pod`. The fields are those of
https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/, as far as version 0.6 knows them. All
fields that the controller's webhook would fill in are set here.
"""

from infra.objects import Manifest
from infra.workloads.kind import WorkloadKind
from infra.workloads.run import Run
from infra.workloads.stateful import ANNOTATIONS, NEVER_ENDS, first_pod

API_VERSION = "leaderworkerset.x-k8s.io/v1"
OTHERWISE = (
    f"the cluster serves no LeaderWorkerSet of {API_VERSION}, so its controller is not there. Let "
    "the platform's stack install it (controllers: [lws]), install it yourself "
    "(https://lws.sigs.k8s.io/docs/installation/), or take the kind that needs no controller: "
    "pulumi config set topology indexed-job"
)


def render(run: Run) -> list[tuple[str, Manifest]]:
    """The LeaderWorkerSet. Its controller makes a headless Service of the same name."""
    # `partition` is left out. The definitions of 0.7 and later fill it in, and that of 0.6 does not
    # know it, so that the API server would refuse it.
    one_at_a_time = {"maxUnavailable": 1, "maxSurge": 0}
    leader_worker_set = {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": run.metadata(run.workload_name, ANNOTATIONS),
        "spec": {
            "replicas": 1,
            # The leader is ready only when all ranks have stepped. So the workers must not wait
            # until the leader is ready.
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            # This is never used, because a change of the pods replaces the workload.
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": one_at_a_time,
            },
            "leaderWorkerTemplate": {
                "size": run.world.pods,
                # A pod that has failed is started again in its place, and the others wait for it or
                # continue. The other policies would make all pods again each time, without a pause
                # even after a fatal error, and would miss some lost pods
                # (kubernetes-sigs/lws#998).
                "restartPolicy": "None",
                "workerTemplate": run.template,  # also used for the leader
            },
        },
    }
    return [("leader-worker-set", leader_worker_set)]


KIND = WorkloadKind(
    name="lws",
    api_version=API_VERSION,
    kind="LeaderWorkerSet",
    object_name="train-lws",
    several_pods=True,
    render=render,
    rendezvous=lambda run: first_pod(run, service=run.workload_name),
    # Without a group there are no pods. The workers end when the leader has saved and is gone.
    suspend=lambda run: {"spec": {"replicas": 0}},
    resume=lambda run: {"spec": {"replicas": 1}},
    no_ttl_because=NEVER_ENDS,
    replace_on=("spec.leaderWorkerTemplate",),
    child_ending="-0",  # the StatefulSet of the workers; that of the leader has no ending
    otherwise=OTHERWISE,
)
