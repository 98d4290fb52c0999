"""The pinned programs that the tests need beside a cluster, and that a demo does not need."""

from sandbox.tools.tool import GoBuild, Tool

VERSITYGW = "1.8.0"
REGISTRY = "3.1.2"
PROMETHEUS = "3.13.0"
PROMETHEUS_OPERATOR_VERSION = "0.93.1"
ALERTMANAGER = "0.34.2"
KWOK = "0.8.0"
MULTUS_VERSION = "4.3.0"

S3_SERVER = Tool(
    "versitygw",
    VERSITYGW,
    ("versitygw",),
    GoBuild("versitygw", ("github.com/versity/versitygw/cmd/versitygw",)),
)

IMAGE_REGISTRY = Tool(
    "registry",
    REGISTRY,
    ("registry",),
    GoBuild("registry", ("github.com/distribution/distribution/v3/cmd/registry",)),
)

# It is built without the user interface, which is not in the module, and without service discovery
# in clouds and clusters, because the tests name their targets.
PROMETHEUS_SERVER = Tool(
    "prometheus",
    PROMETHEUS,
    ("prometheus", "promtool"),
    GoBuild(
        "prometheus",
        tuple(
            f"github.com/prometheus/prometheus/cmd/{program}"
            for program in ("prometheus", "promtool")
        ),
        variables=(("github.com/prometheus/common/version.Version", PROMETHEUS),),
        tags=("remove_all_sd",),
    ),
)

ALERTMANAGER_SERVER = Tool(
    "alertmanager",
    ALERTMANAGER,
    ("alertmanager",),
    GoBuild(
        "alertmanager",
        ("github.com/prometheus/alertmanager/cmd/alertmanager",),
        variables=(("github.com/prometheus/common/version.Version", ALERTMANAGER),),
        additions=(
            (
                "github.com/prometheus/alertmanager",
                "ui/app/dist/index.html",
                "built without its user interface\n",
            ),
        ),
    ),
)

# The same server, for a pod that finds its targets in its cluster.
PROMETHEUS_IN_CLUSTER = Tool(
    "prometheus-in-cluster",
    PROMETHEUS,
    ("prometheus",),
    GoBuild(
        "prometheus",
        ("github.com/prometheus/prometheus/cmd/prometheus",),
        variables=(("github.com/prometheus/common/version.Version", PROMETHEUS),),
        tags=("remove_all_sd", "enable_kubernetes_sd"),
    ),
)

# The operator that runs Prometheus and Alertmanager according to Kubernetes objects, the program
# that lets each of them reload its configuration, and the folder with definitions and roles.
PROMETHEUS_OPERATOR = Tool(
    "prometheus-operator",
    PROMETHEUS_OPERATOR_VERSION,
    ("operator", "prometheus-config-reloader", "example"),
    GoBuild(
        "prometheus-operator",
        tuple(
            f"github.com/prometheus-operator/prometheus-operator/cmd/{program}"
            for program in ("operator", "prometheus-config-reloader")
        ),
        module_files=(("github.com/prometheus-operator/prometheus-operator", "example"),),
    ),
)

# kwok, which stands in for the kubelets of fake nodes, and the rules by which it does so
# (sandbox/fake_nodes.py).
FAKE_NODES = Tool(
    "kwok",
    KWOK,
    ("kwok", "stage"),
    GoBuild(
        "kwok",
        ("sigs.k8s.io/kwok/cmd/kwok",),
        module_files=(("sigs.k8s.io/kwok", "kustomize/stage"),),
    ),
)

# Multus, which gives pods further network interfaces, and the definition of its networks.
MULTUS = Tool(
    "multus",
    MULTUS_VERSION,
    ("multus", "networks-crd.yaml"),
    GoBuild(
        "multus",
        ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",),
        module_files=(
            (
                "github.com/k8snetworkplumbingwg/network-attachment-definition-client",
                "artifacts/networks-crd.yaml",
            ),
        ),
    ),
)

# Stands in for NVIDIA's GPU Operator and its device plugin (tests/operator/README.md).
GPU_STAND_IN = Tool("gpu-stand-in", "1", ("gpu-operator",), GoBuild("gpu-stand-in"))
