"""Decides whether `pulumi up` may go on while a webhook of the cluster does not answer.

Without an answer of the webhook, the API server refuses some objects. If the run has to be made or
resumed, `pulumi up` must not go on, because the run would take the place of another one and then be
refused itself. If the run already trains, a problem that may pass in a moment must not fail
`pulumi up`. The same is true of a stack that installs controllers, because it may be what brings
the webhook back.
"""

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError, TaskError
from infra.kube.objects import Json
from infra.kube.queues.kueue import is_stopped
from infra.kube.runs.workload_now import workload_now
from infra.kube.workload import Workload


def say_refused_now(
    api: Api,
    namespace: str,
    workload: Workload | None,
    suspend: Json,
    found: Findings,
    *,
    installs: bool,
) -> None:
    """Turn each refusal into a note if `pulumi up` may go on, and otherwise into a problem.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        workload: the workload of the run; None: it is not known.
        suspend: the suspend patch of the workload's kind.
        found: its `refused_now` is emptied into its `notes` or `problems`.
        installs: whether the stack installs controllers.
    """
    if not found.refused_now:
        return
    stands = workload is not None and _stands(api, namespace, workload, suspend)
    for refused in found.refused_now:
        words = f"the cluster refuses at the moment {refused}"
        if installs:
            found.notes.append(f"{words}. The stack installs controllers, so this may end with it")
        elif stands:
            found.notes.append(f"{words}. The run goes on, but could not be made again now")
        else:
            found.problems.append(
                f"{words}. Start the program behind that webhook again, or wait until it answers, "
                "and then run pulumi up"
            )
    found.refused_now.clear()


def _stands(api: Api, namespace: str, workload: Workload, suspend: Json) -> bool:
    """Whether the workload exists and nobody has stopped it; True also if this cannot be known."""
    try:
        item = workload_now(api, namespace, workload)
        return item is not None and not is_stopped(api, namespace, item, suspend)
    except (ApiError, TaskError):  # TaskError: this program cannot read the cluster's Kueue.
        return True
