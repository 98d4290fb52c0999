"""What the cluster refuses at the moment, because one of its webhooks does not answer.

A run that has to be made or resumed would take another one's place, and then be refused itself. A
run that stands may stay as it is, and its `pulumi up` must not fail for what passes in a moment.
Nor must that of a stack that installs controllers: it may be what brings the webhook back.
"""

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.errors import ApiError, TaskError
from infra.kube.objects import Json
from infra.kube.queues.kueue import is_stopped
from infra.kube.workload import Workload

NO_SUCH_KIND = 404


def say_refused_now(
    api: Api,
    namespace: str,
    workload: Workload | None,
    suspend: Json,
    found: Findings,
    *,
    installs: bool,
) -> None:
    """Make notes of it where `pulumi up` may go on, and problems where it may not.

    Args:
        api: the cluster.
        namespace: of the run.
        workload: of the run; None: it is not known.
        suspend: the suspend patch of its kind.
        found: of which `refused_now` moves to one of the others.
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
    """Whether it is there and nobody has stopped it; True where that cannot be seen."""
    try:
        path = api.path(workload.api_version, workload.kind, namespace, workload.name)
        item = api.get(path)
        return item is not None and not is_stopped(api, namespace, item, suspend)
    except ApiError as error:
        return error.status != NO_SUCH_KIND
    except TaskError:  # a Kueue that serves other versions than this program reads
        return True
