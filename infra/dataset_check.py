"""Asks a cluster whether another stack uses the name of a run's data set for other data."""

from infra.cluster_check import SECONDS
from infra.kube.api_server.access import Access
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.runs.dataset_findings import DatasetUse, dataset_findings
from infra.settings import RunSettings
from infra.settings.run_settings import dataset_only


def dataset_use(
    run: RunSettings | None, namespace: str, claim: str, owner: str
) -> DatasetUse | None:
    """The data set of a run; None if there is no run, or one that brings its own data.

    Args:
        run: the settings of the run.
        namespace: the namespace of the platform.
        claim: the name of the platform's claim.
        owner: the owner id of this stack; empty before its first `up`.
    """
    if run is None or run.config.has_program:
        return None
    return DatasetUse(namespace, claim, owner, dataset_only(run.config)["dataset"])


def ask_about_dataset(access: Access, use: DatasetUse) -> Findings:
    """Ask only about the data set. If a request fails, a note says why.

    The cluster is a k3s of disttrain, of which nothing else has to be checked.
    """
    try:
        with read_only_api(access, SECONDS) as api:
            return dataset_findings(api, use)
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        what = f"whether another stack uses the name {use.dataset['name']} for other data"
        return Findings(notes=[f"it was not checked {what}: {reason}"])
