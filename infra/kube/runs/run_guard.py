"""Task `run-guard`: refuses to destroy a run while its cluster cannot be reached."""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, KubeconfigError, TaskError, UnreachableError
from infra.kube.gone_cluster import PATIENCE_SECONDS, WAY_OUT, is_given_up
from infra.kube.job import Job
from infra.kube.record import record_path


def delete(job: Job, api: Api) -> None:
    """Refuse to go on if the kubeconfig cannot be used or the cluster does not answer.

    Otherwise the Kubernetes provider would say that the cluster is unreachable, and advise to let
    the stack forget its objects. If only the context has got another name, they would stay in the
    cluster, and their pods would keep the GPUs.

    Raises:
        TaskError: the run cannot be reached, and the user has not given the cluster up.
        KubeconfigError, UnreachableError: the same, and the user has given it up.
    """
    api.patience_seconds = PATIENCE_SECONDS
    try:
        api.get(record_path(job.namespace, job.owner))
    except ApiError:
        return  # The cluster answers. What these credentials may not do is said by what needs it.
    except (KubeconfigError, UnreachableError) as reason:
        if is_given_up():
            raise
        raise TaskError(f"{_refusal(reason, job.text('platform_stack'))}. {WAY_OUT}") from None


def _refusal(reason: KubeconfigError | UnreachableError, platform_stack: str) -> str:
    if isinstance(reason, UnreachableError):
        return (
            f"the cluster does not answer ({reason}). Nothing was deleted; run pulumi destroy when "
            "it answers"
        )
    return (
        f"{reason}. Nothing was deleted. A new name or place is noted by `pulumi up --stack "
        f"{platform_stack}`, whose platform this is, and then by `pulumi up` of this stack"
    )
