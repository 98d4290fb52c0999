"""Task `accepted`: waits until the webhooks know the objects that a new workload refers to.

The webhooks of Kubeflow Trainer and of Kueue refuse a TrainJob whose TrainingRuntime they have not
seen. They learn of a runtime a moment after the API server has it, but the engine makes the
TrainJob at once. So with a busy controller, `pulumi up` would fail. The only way to ask a webhook
whether it knows the runtime is to send a TrainJob. This task sends one with dryRun, so that the API
server only checks it and does not make it.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.job import Job
from infra.kube.waiting import wait_for

LIMIT_SECONDS = 60
TRY_OUT = {"dryRun": "All"}


def create(job: Job, api: Api) -> None:
    """Wait while the API server refuses the job's `manifest` for one of the expected reasons.

    The job's `refused_at_first` lists pieces of the messages of such refusals. `{name}` in them
    stands for the name of the object. Any other answer ends the wait without an error, because the
    engine makes the object next, and then reports a refusal itself.

    Raises:
        TaskError: the limit is reached. The text has the refusal and what to do.
    """
    manifest = job.mapping("manifest")
    kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
    passing = [words.replace("{name}", name) for words in job.texts("refused_at_first")]
    path = api.path(str(manifest["apiVersion"]), kind, job.namespace)

    def ask() -> str:
        try:
            api.request("POST", path, manifest, query=TRY_OUT)
        except ApiError as refused:
            if any(words in str(refused) for words in passing):
                return f"{refused}. If this lasts, that controller does not work: look at its log"
        return ""

    wait_for(f"the controllers of {kind} {name} to know what it names", ask, LIMIT_SECONDS)
