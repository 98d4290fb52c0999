"""Names that users and other programs have to find."""

PROXY_CONFIG = "proxy-config"
CA_KEY = "ca.crt"  # of the ConfigMap with further authorities to trust
MASTER_PORT = 29500
STORE_PORTS = 16  # after it, which the rounds use in turn (trainer/launch/ports.py)
DATA_ROOT, DATA_SIZE = "/var/lib/disttrain", "50Gi"  # defaults in Pulumi.yaml
CLAIM = "disttrain-pvc"  # every pod mounts it with these defaults; names of other claims begin so
CLAIM_OF_CLASS = f"{CLAIM}-class"  # for which a storage class makes the volume
DATA_MOUNT = "/data"  # where every pod sees the volume
INCOMING = "datasets/.incoming"  # below the volume's root: files on their way to `prepare`
RUN_CONFIG_PATH = "/etc/disttrain/run.yaml"
PROGRAM_MOUNT = "/program"  # where pods see the files of a user's own program
READY_FILE = "/tmp/disttrain/ready"  # the entrypoint keeps it (trainer/launch/status_files.py)
TRAINING = "training"  # the component label of everything that trains
DATASET = "dataset"
EARLY_OUTPUTS = "disttrain:infra:EarlyOutputs"  # type of the component in the stack's state
LOST_NODES = "lost-nodes"  # the component label of the program of the setting lostNodes
LOST_NODES_PROGRAM = f"disttrain-{LOST_NODES}"  # its Deployment
NODE_HEALTH = "node-health"  # the component label of the pods that watch machines
KERNEL_LOG_ANNOTATION = "disttrain.dev/kernel-log"  # says why a pod reads the kernel's log
HOST_NETWORK_ANNOTATION = "disttrain.dev/host-network"  # names the profile that needs it
TRAINER_CONTAINER = "trainer"
# Every pod of ours bears the taint of nodes that are kept for pods with GPUs: a cluster may have no
# other nodes, and the volume may be on none of them.
GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"  # of the device plugin for Amazon's EFA
GPU_TOLERATION = {"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
HOSTNAME_LABEL = "kubernetes.io/hostname"  # every node has it, with a value of its own
# Access modes of a claim, as Kubernetes writes them.
ONE_NODE, ONE_POD, MANY_NODES = "ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"
# Labels by which Kueue takes a workload up.
# https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
REQUIRED_PLACE = "kueue.x-k8s.io/podset-required-topology"  # annotations of pods
PREFERRED_PLACE = "kueue.x-k8s.io/podset-preferred-topology"
PLACE_ANNOTATIONS = {
    REQUIRED_PLACE,
    PREFERRED_PLACE,
    "kueue.x-k8s.io/podset-unconstrained-topology",
}
