"""The components and resources that each stack of the project has to register."""

COMPONENTS = {
    "disttrain:infra:Owner": ("infra.platform.owner", "Owner"),
    "disttrain:infra:ClusterAccess": ("infra.platform.access", "ClusterAccess"),
    "disttrain:infra:HostGuard": ("infra.platform.host_guard", "HostGuard"),
    "disttrain:infra:HostTrust": ("infra.platform.host", "HostTrust"),
    "disttrain:infra:Doctor": ("infra.node.doctor", "Doctor"),
    "disttrain:infra:Agent": ("infra.platform.further_machine", "FurtherMachine"),
    "disttrain:infra:Cluster": ("infra.platform.cluster", "Cluster"),
    "disttrain:infra:GpuOperator": ("infra.platform.gpu_operator", "GpuOperator"),
    "disttrain:infra:TrainerImage": ("infra.platform.trainer_image", "TrainerImage"),
    "disttrain:infra:SameMachine": ("infra.platform.same_machine", "SameMachine"),
    "disttrain:infra:Namespace": ("infra.platform.namespace", "Namespace"),
    "disttrain:infra:DataFolder": ("infra.platform.data_folder", "DataFolder"),
    "disttrain:infra:DataVolume": ("infra.platform.data_volume", "DataVolume"),
    "disttrain:infra:ProxyConfig": ("infra.platform.proxy", "ProxyConfig"),
    "disttrain:infra:Monitoring": ("infra.platform.monitoring", "Monitoring"),
    "disttrain:infra:Viewers": ("infra.platform.viewers", "Viewers"),
    "disttrain:infra:LostNodes": ("infra.platform.lost_nodes", "LostNodes"),
    "disttrain:infra:NodeHealth": ("infra.platform.node_health", "NodeHealth"),
    "disttrain:infra:NamespaceGuard": ("infra.platform.namespace_guard", "NamespaceGuard"),
    "disttrain:infra:TaskPods": ("infra.platform.guards", "TaskPods"),
    "disttrain:infra:DestroyGuard": ("infra.platform.guards", "DestroyGuard"),
    "disttrain:infra:DatasetJob": ("infra.run.dataset", "DatasetJob"),
    "disttrain:infra:RunConfigMap": ("infra.run.config_maps", "RunConfigMap"),
    "disttrain:infra:RunKey": ("infra.run.run_key", "RunKey"),
    "disttrain:infra:Workload": ("infra.run.workload", "Workload"),
    "disttrain:infra:EarlyOutputs": ("infra.outputs", "EarlyOutputs"),
    "disttrain:infra:RunGuard": ("infra.run.run_guard", "RunGuard"),
    "disttrain:infra:Verification": ("infra.run.verification", "Verification"),
}
COMMON = {
    "pulumi:providers:kubernetes cluster-provider",
    "command:local:Command owner-identity",
    "command:local:Command task-pods-leftovers",
}
PLATFORM = COMMON | {
    "command:local:Command image-ensure",
    "command:local:Command namespace-look",
    "command:local:Command namespace-names",
    "kubernetes:core/v1:Namespace namespace-namespace",
    "command:local:Command data-root-folder",
    "command:local:Command data-root-folder-begun",
    "command:local:Command data-look",
    "kubernetes:core/v1:PersistentVolume data-volume",
    "kubernetes:core/v1:PersistentVolumeClaim data-claim",
    "kubernetes:core/v1:ConfigMap proxy-config-map",
    "kubernetes:core/v1:Secret proxy-secret",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole viewers-role",
    "command:local:Command destroy-guard-look",
}
RUN = {
    "kubernetes:core/v1:ConfigMap dataset-settings-config-map",
    "kubernetes:batch/v1:Job dataset-job",
    "kubernetes:core/v1:ConfigMap run-config-map",
    "command:local:Command run-key-random",
    "kubernetes:core/v1:Secret run-key-secret",
    "command:local:Command training-hand-over",
    "command:local:Command training-await",
}
ON_ANOTHER = (
    COMMON
    | RUN
    | {"command:local:Command cluster-generation", "command:local:Command run-guard-look"}
)
ON_K3S = {
    "command:local:Command cluster-begun-localhost",
    "command:local:Command cluster-copies",
    "kubernetes:core/v1:ServiceAccount node-health-account",
    "kubernetes:rbac.authorization.k8s.io/v1:Role node-health-role",
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding node-health-role-binding",
    "kubernetes:core/v1:ConfigMap node-health-program",
    "kubernetes:apps/v1:DaemonSet node-health-daemon-set",
    "command:local:Command doctor-host",
    "command:local:Command host-guard-look",
    "command:local:Command cluster-generation",
    "command:local:Command cluster-k3s",
    "command:local:Command cluster-kubeconfig",
    "kubernetes:core/v1:Namespace gpu-operator-namespace",
    "kubernetes:helm.sh/v3:Release gpu-operator-release",
    "command:local:Command gpu-operator-guard",
    "command:local:Command gpu-operator-cleanup",
    "command:local:Command gpu-operator-watch",
    "command:local:Command gpu-operator-await",
    "command:local:Command gpu-operator-namespace-guard-look",
}
IN_SANDBOX = {"command:local:Command dataset-upload"}
ON_EXISTING = {"command:local:Command same-machine-look"}
SINGLE = {"kubernetes:batch/v1:Job training-job"}
MULTI = {
    "kubernetes:core/v1:Service training-service",
    "kubernetes:apps/v1:StatefulSet training-stateful-set",
}
EXPECTED = {
    "dev": PLATFORM | RUN | ON_K3S | SINGLE,
    "multipod": ON_ANOTHER | MULTI,
    "sandbox": PLATFORM | RUN | IN_SANDBOX | ON_EXISTING | SINGLE,
    "sandbox-multipod": ON_ANOTHER | IN_SANDBOX | MULTI,
}
OWNERS = ("dev", "sandbox")
