"""The kinds of workload: choices of the setting `topology`."""

from infra.registry import Registry
from infra.workloads import (
    indexed_job,
    jobset,
    lws,
    mpijob,
    multi_pod,
    pytorchjob,
    single_pod,
    trainjob,
    volcano,
)
from infra.workloads.kind import WorkloadKind

WORKLOADS: Registry[WorkloadKind] = Registry(
    "topology",
    [
        single_pod.KIND,
        multi_pod.KIND,
        indexed_job.KIND,
        jobset.KIND,
        trainjob.KIND,
        pytorchjob.KIND,
        mpijob.KIND,
        volcano.KIND,
        lws.KIND,
    ],
)
