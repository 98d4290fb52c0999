"""Lets an API server refuse to make an object by an admission policy, as a webhook may."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.objects import Json

GROUP = "admissionregistration.k8s.io"
LIMIT_SECONDS = 60


@contextmanager
def refused(api: Api, trial: Json, words: str, namespace: str) -> Iterator[None]:
    """Let the API server refuse objects of `trial`'s kind and name during the block.

    Args:
        api: the API of the cluster.
        trial: an object of that kind and name. It is sent as a dry run, so it is never made.
        words: the reason that the API server gives.
        namespace: the namespace of the object.
    """
    kind, name = str(trial["kind"]), str(trial["metadata"]["name"])
    path = api.path(str(trial["apiVersion"]), kind, namespace)
    group, _, version = str(trial["apiVersion"]).rpartition("/")
    plural = path.rpartition("/")[2]
    policy = f"refuse-{plural}"
    rule = {"apiGroups": [group], "apiVersions": [version], "resources": [plural]}
    specs = {
        "ValidatingAdmissionPolicy": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
            "matchConditions": [{"name": "it", "expression": f"object.metadata.name == '{name}'"}],
            "validations": [{"expression": "false", "message": words, "reason": "Forbidden"}],
        },
        "ValidatingAdmissionPolicyBinding": {"policyName": policy, "validationActions": ["Deny"]},
    }
    paths = {each: api.path(f"{GROUP}/v1", each, "") for each in specs}
    try:
        for each, spec in specs.items():
            about = {"apiVersion": f"{GROUP}/v1", "kind": each, "metadata": {"name": policy}}
            api.create(paths[each], {**about, "spec": spec})
        deadline = time.monotonic() + LIMIT_SECONDS
        while not _is_refused(api, path, trial, words):
            assert time.monotonic() < deadline, f"{kind} {name} is not refused"
            time.sleep(0.2)
        yield
    finally:
        for place in paths.values():
            api.delete(f"{place}/{policy}", {})


def _is_refused(api: Api, path: str, trial: Json, words: str) -> bool:
    try:
        api.request("POST", path, trial, query={"dryRun": "All"})
    except ApiError as reason:
        return words in str(reason)
    return False
