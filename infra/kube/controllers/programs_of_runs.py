"""Finds out whether the programs of the controllers that a run needs have an available pod.

Their Deployments are found in all namespaces, by the labels that the projects publish them with.
So those that somebody else has installed are found too. A Deployment with other labels is not
found, and then nothing is said about its program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, label, name_of, part
from infra.kube.workload import Workload
from infra.names import QUEUE_LABEL

DEPLOYMENTS = "/apis/apps/v1/deployments"


@dataclass(frozen=True)
class Program:
    """A program of a controller.

    Args:
        title: the name of the program in messages.
        selectors: label selectors, such as `app=one,part-of=two`. A Deployment that matches one of
            them starts this program.
    """

    title: str
    selectors: tuple[str, ...]


KUEUE = Program(
    "Kueue's controller", ("app.kubernetes.io/name=kueue,control-plane=controller-manager",)
)
# The first selector of JobSet and of Trainer is for the chart, the second one for the manifests.
JOBSET = Program(
    "JobSet's controller",
    (
        "app.kubernetes.io/name=jobset",
        "app.kubernetes.io/part-of=jobset,control-plane=controller-manager",
    ),
)
TRAINER = Program(
    "Kubeflow Trainer",
    (
        "app.kubernetes.io/name=kubeflow-trainer",
        "app.kubernetes.io/name=trainer,app.kubernetes.io/part-of=kubeflow",
    ),
)
TRAINING_OPERATOR = Program(
    "Kubeflow's Training Operator", ("control-plane=kubeflow-training-operator",)
)
MPI_OPERATOR = Program("Kubeflow's MPI Operator", ("app.kubernetes.io/name=mpi-operator",))
LWS = Program("LeaderWorkerSet's controller", ("app.kubernetes.io/name=lws",))
VOLCANO = (
    Program("Volcano's controller", ("app=volcano-controller",)),
    Program("Volcano's scheduler", ("app=volcano-scheduler",)),
)
ALL = (KUEUE, JOBSET, TRAINER, TRAINING_OPERATOR, MPI_OPERATOR, LWS, *VOLCANO)

# The programs by the API group and the kind of a run's workload. Kubernetes itself carries out the
# other kinds.
NEEDED: Mapping[tuple[str, str], tuple[Program, ...]] = {
    ("jobset.x-k8s.io", "JobSet"): (JOBSET,),
    ("trainer.kubeflow.org", "TrainJob"): (TRAINER, JOBSET),
    ("kubeflow.org", "PyTorchJob"): (TRAINING_OPERATOR,),
    ("kubeflow.org", "MPIJob"): (MPI_OPERATOR,),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (LWS,),
    ("batch.volcano.sh", "Job"): VOLCANO,
}


def programs_of(workload: Workload, item: Json) -> tuple[Program, ...]:
    """The programs without which nothing changes about a run. This function is pure.

    Args:
        workload: the kind and the name of the run's workload.
        item: the workload. If it names a queue of Kueue, Kueue is needed too.
    """
    own = NEEDED.get((workload.api_version.rpartition("/")[0], workload.kind), ())
    return (*own, KUEUE) if label(item, QUEUE_LABEL) else own


def is_of(program: Program, deployment: Json) -> bool:
    """Whether a Deployment starts a program, by its labels. This function is pure."""
    return any(
        all(label(deployment, key) == value for key, value in parse_pairs(selector))
        for selector in program.selectors
    )


def parse_pairs(text: str) -> list[tuple[str, str]]:
    """The pairs in a text such as `app=one,part-of=two`. This function is pure."""
    return [(key, value) for key, _, value in (each.partition("=") for each in text.split(","))]


def words_of_down(title: str, deployments: Sequence[Json]) -> str:
    """That no Deployment of a program has an available pod, and where to look; empty: one has.

    The text is also empty without any Deployment, because then nothing is known about the program.
    This function is pure.

    Args:
        title: the name of the program.
        deployments: its Deployments in all namespaces.
    """
    if any(part(each, "status").get("availableReplicas") for each in deployments):
        return ""
    places = {(str(part(each, "metadata").get("namespace")), name_of(each)) for each in deployments}
    each_place = [
        f"Deployment {name} in namespace {namespace} has no available pod "
        f"(kubectl -n {namespace} get pods)"
        for namespace, name in sorted(places)
    ]
    return f"{title} is down: {', '.join(each_place)}" if places else ""


class ProgramsOfRuns:
    """Asks a cluster about these programs, and about each of them once.

    Args:
        api: the cluster.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._words: dict[Program, str] = {}

    def words_of_down(self, workload: Workload, item: Json) -> str:
        """Which programs that a run needs have no available pod; empty: each has one.

        A program whose Deployments cannot be read is left out, because the text is only an addition
        to what is known about the run.

        Args:
            workload: the kind and the name of the run's workload.
            item: the workload.
        """
        needed = programs_of(workload, item)
        return "; ".join(filter(None, (self._of(program) for program in needed)))

    def _of(self, program: Program) -> str:
        if program not in self._words:
            try:
                found = [
                    item
                    for selector in program.selectors
                    for item in self._api.list(DEPLOYMENTS, selector)
                ]
            except (ApiError, UnreachableError):  # for instance, these credentials may not look
                found = []
            self._words[program] = words_of_down(program.title, found)
        return self._words[program]
