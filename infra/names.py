"""Names that users type, or that several programs have to agree on."""

PROXY_CONFIG = "proxy-config"
CA_KEY = "ca.crt"  # the key in the ConfigMap of further certificate authorities to trust
MASTER_PORT = 29500
STORE_PORTS = 16  # ports after MASTER_PORT; rounds use them in turn (trainer/launch/ports.py)
DATA_ROOT, DATA_SIZE = "/var/lib/disttrain", "50Gi"  # defaults in Pulumi.yaml
CLAIM = "disttrain-pvc"  # the claim with these defaults; the names of other claims begin with it
CLAIM_OF_CLASS = f"{CLAIM}-class"  # a claim whose volume a storage class makes
DATA_MOUNT = "/data"  # where every pod sees the volume
INCOMING = "datasets/.incoming"  # in the volume: uploaded files that `prepare` will read
RUN_CONFIG_PATH = "/etc/disttrain/run.yaml"
PROGRAM_MOUNT = "/program"  # where pods find the files of a user's own program
READY_FILE = "/tmp/disttrain/ready"  # written by the entrypoint (trainer/launch/status_files.py)
# Labels of disttrain's objects.
COMPONENT_LABEL = "app.kubernetes.io/component"
OWNER_LABEL = "disttrain.dev/owner"  # the identity of the stack's state
REVISION_LABEL = "disttrain.dev/revision"  # a hash of what the object is made of
STACK_LABEL = "disttrain.dev/stack"  # the name of the stack, for people
TRAINING = "training"  # the component label of the objects of a training
DATASET = "dataset"  # the component label of the objects that prepare a data set
EARLY_OUTPUTS = "disttrain:infra:EarlyOutputs"  # the component's type in the stack's state
LOST_NODES = "lost-nodes"  # the component label of the program for the setting lostNodes
LOST_NODES_PROGRAM = f"disttrain-{LOST_NODES}"  # the name of its Deployment
NODE_HEALTH = "node-health"  # the component label of the pods that watch machines
KERNEL_LOG_ANNOTATION = "disttrain.dev/kernel-log"  # the reason why a pod reads the kernel's log
HOST_NETWORK_ANNOTATION = "disttrain.dev/host-network"  # the network profile that needs it
TRAINER_CONTAINER = "trainer"
TRAINER_UID = 1000  # the user in the trainer image; it and its group own disttrain's data folders
# Every pod of disttrain tolerates the taint of nodes that are reserved for pods with GPUs. A
# cluster may have no other nodes, or the volume may be available only on nodes with that taint.
GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # offered by the device plugin for Amazon's EFA
ATTACHMENTS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"  # further networks of a pod, for Multus
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
HOSTNAME_LABEL = "kubernetes.io/hostname"  # every node has it, each with a different value
# The access modes of a claim, with Kubernetes' names.
ONE_NODE, ONE_POD, MANY_NODES = "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"
# Labels that put a workload under Kueue's control.
# https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"  # annotations of pods
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
TOPOLOGY_ANNOTATIONS = {
    REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    "kueue.x-k8s.io/podset-unconstrained-topology",
}
