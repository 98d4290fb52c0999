"""`python -m infra.kube TASK ACTION` runs one task on a cluster.

The task reads its job as JSON from standard input, because the job holds the kubeconfig, which must
not be on a command line. On SIGTERM, SIGINT or SIGHUP the task cleans up before it ends. It does
the same when the shell that has started it ends, for example after Ctrl-C.

A task is a module with the functions `create` and `delete`. It lacks one of them if there is
nothing to do: most guards have only a `delete`, and a task that makes nothing only a `create`. The
task `copies` has neither, because `run_task` removes the copies of the kubeconfig at the end of
every task. It is the first task that the engine records, so `destroy` has at least this one to run,
even if `up` was killed before it had registered another one.

Exit status: 0: the task is done; 1: the task failed, and the reason was printed; 2: the command
line is wrong.
"""

import importlib
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from infra.end_with_parent import end_with_parent

if TYPE_CHECKING:
    from infra.kube.api_server.api import Api
    from infra.kube.job import Job

TASKS = {
    "accepted": "runs.accepted",
    "await": "runs.await_ready",
    "apply-definitions": "controllers.apply_definitions",
    "claim-controller": "controllers.claim_controller",
    "claim-names": "namespaces.claim_names",
    "claim-namespace": "namespaces.claim_namespace",
    "claim-queues": "queues.claim_queues",
    "copies": "api_server.copies",
    "controller-remains": "controllers.controller_remains",
    "dataset-name": "runs.dataset_name",
    "dataset-progress": "runs.dataset_progress",
    "destroy-guard": "runs.destroy_guard",
    "free-volume": "volumes.free_volume",
    "hand-over": "runs.hand_over",
    "keep-claim": "volumes.keep_claim",
    "leftovers": "pods.leftovers",
    "monitoring-claim": "volumes.monitoring_claim",
    "namespace-guard": "namespaces.namespace_guard",
    "open-controller": "controllers.open_controller",
    "open-queue": "queues.open_queue",
    "queue": "queues.check_queue",
    "replaced": "runs.replaced",
    "run-guard": "runs.run_guard",
    "same-machine": "pods.same_machine",
    "served": "controllers.served",
    "upload": "files.upload",
    "use-claim": "volumes.use_claim",
    "use-namespace": "namespaces.use_namespace",
}
ACTIONS = ("create", "delete")
USE = f"usage: python -m infra.kube {'|'.join(TASKS)} {'|'.join(ACTIONS)}"


def main(words: list[str]) -> int:
    """Run one task; returns the exit status."""
    if len(words) != 2 or words[0] not in TASKS or words[1] not in ACTIONS:
        print(USE, file=sys.stderr)
        return 2

    def task(job: "Job", api: "Api") -> None:
        module = importlib.import_module(f"infra.kube.{TASKS[words[0]]}")
        action = getattr(module, words[1], None)
        if action:
            action(job, api)

    return run_task(task, removes=words[1] == "delete")


def run_task(task: "Callable[[Job, Api], None]", *, removes: bool = False) -> int:
    """Run one task with the job from standard input; returns the exit status.

    `removes`: the task removes something from the cluster (see infra/kube/gone_cluster.py).
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    end_with_parent()
    # These modules are imported here, so that a wrong command line is reported without delay.
    from infra.kube.api_server.api import Api
    from infra.kube.api_server.copies import remove_copies
    from infra.kube.errors import ApiError, KubeconfigError, TaskError, UnreachableError
    from infra.kube.gone_cluster import PATIENCE_SECONDS, WAY_OUT, forgotten, is_given_up
    from infra.kube.job import parse_job
    from infra.kube.say import say, say_error

    try:
        job = parse_job(sys.stdin.read())
        api = Api(job.access)
        if removes and is_given_up():
            api.patience_seconds = PATIENCE_SECONDS
        try:
            task(job, api)
        finally:
            remove_copies(job.access)
    except (KubeconfigError, UnreachableError) as reason:
        is_away = isinstance(reason, UnreachableError)
        text = f"the API server does not answer: {reason}" if is_away else str(reason)
        if removes and is_given_up():
            say(forgotten(text))
            return 0
        say_error(f"{text}. {WAY_OUT}" if removes else text)
        return 1
    except (TaskError, ValueError) as reason:
        say_error(str(reason))
        return 1
    except ApiError as reason:
        say_error(f"the API server refuses it ({reason.status}): {reason}")
        return 1
    return 0


def _end(number: int, _frame: FrameType | None) -> None:
    """End the task with its clean-up. If the same signal comes again, the process ends at once."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.exit(status)
