"""The pinned controllers of workloads and queues, and the charts or manifests that install them."""

from sandbox.tools.tool import GoBuild, Tool

JOBSET = "0.12.0"
TRAINER = "2.3.0"
TRAINING_OPERATOR = "1.9.4"
MPI_OPERATOR = "0.8.2"
VOLCANO = "1.14.1"
LWS = "0.9.0"
KUEUE = "0.19.2"


def jobset_controller(version: str, module: str = "jobset") -> Tool:
    """JobSet's controller, and the folder with its resource definitions (CRDs).

    Args:
        version: the version of JobSet.
        module: the folder in `sandbox/go` that pins that version.
    """
    return Tool(
        "jobset",
        version,
        ("jobset", "config"),
        GoBuild(
            module,
            ("sigs.k8s.io/jobset",),
            variables=(("sigs.k8s.io/jobset/pkg/version.GitVersion", f"v{version}"),),
            module_files=(("sigs.k8s.io/jobset", "config"),),
        ),
    )


def trainer_controller(version: str, module: str = "trainer") -> Tool:
    """Kubeflow Trainer's controller of TrainJobs, and its resource definitions.

    Args:
        version: the version of Trainer.
        module: the folder in `sandbox/go` that pins that version.
    """
    return Tool(
        "trainer",
        version,
        ("trainer-controller-manager", "manifests"),
        GoBuild(
            module,
            ("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",),
            module_files=(("github.com/kubeflow/trainer/v2", "manifests"),),
        ),
    )


JOBSET_CONTROLLER = jobset_controller(JOBSET)
TRAINER_CONTROLLER = trainer_controller(TRAINER)

# Kubeflow's older controller, the Training Operator, of PyTorchJobs, and its definitions.
PYTORCHJOB_CONTROLLER = Tool(
    "training-operator",
    TRAINING_OPERATOR,
    ("training-operator.v1", "manifests"),
    GoBuild(
        "training-operator",
        ("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
        module_files=(("github.com/kubeflow/training-operator", "manifests"),),
    ),
)

# Kubeflow's MPI Operator, the controller of MPIJobs, and its definitions.
MPIJOB_CONTROLLER = Tool(
    "mpi-operator",
    MPI_OPERATOR,
    ("mpi-operator", "manifests"),
    GoBuild(
        "mpi-operator",
        ("github.com/kubeflow/mpi-operator/cmd/mpi-operator",),
        module_files=(("github.com/kubeflow/mpi-operator", "manifests"),),
    ),
)

# Volcano's controllers, its scheduler and their manifests. Its go.mod asks for the same versions as
# that of Kubernetes, so that packages that both use are compiled only once.
VOLCANO_CONTROLLERS = Tool(
    "volcano",
    VOLCANO,
    ("controller-manager", "scheduler", "volcano-development.yaml"),
    GoBuild(
        "volcano",
        tuple(f"volcano.sh/volcano/cmd/{name}" for name in ("controller-manager", "scheduler")),
        variables=(("volcano.sh/volcano/pkg/version.Version", f"v{VOLCANO}"),),
        module_files=(("volcano.sh/volcano", "installer/volcano-development.yaml"),),
    ),
)

# The controller of LeaderWorkerSets, and its definitions. The package of its program is `cmd`.
LWS_CONTROLLER = Tool(
    "lws",
    LWS,
    ("lws", "config"),
    GoBuild(
        "lws",
        ("sigs.k8s.io/lws/cmd",),
        variables=(("sigs.k8s.io/lws/pkg/version.GitVersion", f"v{LWS}"),),
        module_files=(("sigs.k8s.io/lws", "config"),),
    ),
)

# Kueue's controller, and the folder with its definitions.
KUEUE_CONTROLLER = Tool(
    "kueue",
    KUEUE,
    ("kueue", "config"),
    GoBuild(
        "kueue",
        ("sigs.k8s.io/kueue/cmd/kueue",),
        variables=(("sigs.k8s.io/kueue/pkg/version.GitVersion", f"v{KUEUE}"),),
        module_files=(("sigs.k8s.io/kueue", "config"),),
    ),
)

# The Helm charts of JobSet and Kueue, which a platform can install. The modules have them too.
JOBSET_CHART = Tool(
    "jobset-chart",
    JOBSET,
    ("jobset",),
    GoBuild("jobset", (), module_files=(("sigs.k8s.io/jobset", "charts/jobset"),)),
)
KUEUE_CHART = Tool(
    "kueue-chart",
    KUEUE,
    ("kueue",),
    GoBuild("kueue", (), module_files=(("sigs.k8s.io/kueue", "charts/kueue"),)),
)

# The manifests of the five controllers that have no chart that could be pinned.
MPI_OPERATOR_MANIFESTS = Tool(
    "mpi-operator-manifests",
    MPI_OPERATOR,
    ("mpi-operator.yaml",),
    GoBuild(
        "mpi-operator",
        (),
        module_files=(("github.com/kubeflow/mpi-operator", "deploy/v2beta1/mpi-operator.yaml"),),
    ),
)
# The program of Volcano's webhooks, which Volcano in a cluster of the sandbox runs without.
VOLCANO_WEBHOOKS = Tool(
    "volcano-webhooks",
    VOLCANO,
    ("webhook-manager",),
    GoBuild(
        "volcano",
        ("volcano.sh/volcano/cmd/webhook-manager",),
        variables=(("volcano.sh/volcano/pkg/version.Version", f"v{VOLCANO}"),),
    ),
)
VOLCANO_MANIFESTS = Tool(
    "volcano-manifests",
    VOLCANO,
    ("volcano-development.yaml", "gen-admission-secret.sh"),
    GoBuild(
        "volcano",
        (),
        module_files=(
            ("volcano.sh/volcano", "installer/volcano-development.yaml"),
            (
                "volcano.sh/volcano",
                "installer/dockerfile/webhook-manager/gen-admission-secret.sh",
            ),
        ),
    ),
)
TRAINING_OPERATOR_MANIFESTS = Tool(
    "training-operator-manifests",
    TRAINING_OPERATOR,
    ("manifests",),
    GoBuild(
        "training-operator",
        (),
        module_files=(("github.com/kubeflow/training-operator", "manifests"),),
    ),
)
TRAINER_MANIFESTS = Tool(
    "trainer-manifests",
    TRAINER,
    ("manifests",),
    GoBuild("trainer", (), module_files=(("github.com/kubeflow/trainer/v2", "manifests"),)),
)
LWS_MANIFESTS = Tool(
    "lws-manifests",
    LWS,
    ("config",),
    GoBuild("lws", (), module_files=(("sigs.k8s.io/lws", "config"),)),
)
