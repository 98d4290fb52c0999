"""Task `accepted`: waits until the controller of a workload knows the objects that it names.

The webhooks of Kubeflow Trainer and of Kueue refuse a TrainJob whose TrainingRuntime they have not
seen. They hear of a runtime a moment after the API server has it, and the engine makes the TrainJob
at once, so a busy controller would fail `pulumi up`. Whether a webhook knows the runtime can only
be asked by a TrainJob, which the API server checks here and does not make.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.job import Job
from infra.kube.waiting import wait_for

LIMIT_SECONDS = 60
TRY_OUT = {"dryRun": "All"}


def create(job: Job, api: Api) -> None:
    """Wait until `manifest` is no longer refused with one of the words `refused_at_first`.

    `{name}` in them stands for its name.
    Any other answer ends the wait well: the engine asks in earnest next, and shows it.

    Raises:
        TaskError: the limit is reached; with the refusal, and what to do.
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


def delete(job: Job, api: Api) -> None:
    """Nothing of the wait stays behind."""
    del job, api
