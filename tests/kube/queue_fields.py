"""The fields that this program reads and writes in each kind of Kueue."""

FIELDS = {
    "localqueues": ("spec.clusterQueue", "spec.stopPolicy", "status.conditions"),
    "clusterqueues": (
        "spec.admissionChecksStrategy",
        "spec.stopPolicy",
        "spec.namespaceSelector",
        "spec.preemption.withinClusterQueue",
        "spec.resourceGroups",
        "status.conditions",
    ),
    "admissionchecks": ("spec.controllerName",),
    "resourceflavors": ("spec.nodeLabels", "spec.topologyName"),
    "topologies": ("spec.levels",),
    "workloadpriorityclasses": ("value", "description"),
    "workloads": (
        "spec.active",
        "spec.priority",
        "spec.queueName",
        "spec.podSets",
        "status.admission.clusterQueue",
        "status.admissionChecks",
        "status.conditions",
    ),
}
