"""Compares the user of a run's pods with the users that OpenShift allows in the namespace.

OpenShift lets an administrator make any pod, so the dry run of such a user succeeds. The pods of a
Job count as those of their service account, for which OpenShift's rules (SCC) mostly allow only a
range of users of the namespace's own. The Job says so only in events.

https://docs.openshift.com/container-platform/latest/authentication/managing-security-context-constraints.html
"""

import re

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import object_at
from infra.kube.objects import Json, annotation, part
from infra.kube.paths import NAMESPACES

ANNOTATION = "openshift.io/sa.scc.uid-range"


def uid_range_note(api: Api, namespace: str, pod: Json) -> str:
    """What to set if the pods' user is not in the namespace's range; empty: nothing has to be set.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        pod: the manifest of one of its pods.
    """
    there = object_at(api, f"{NAMESPACES}/{namespace}")
    text = annotation(there, ANNOTATION) if isinstance(there, dict) else ""
    found = re.fullmatch(r"(\d+)([/-])(\d+)", text)
    if not found:
        return ""
    first, last = int(found[1]), int(found[3])
    if found[2] == "/":  # The second number says how many users there are.
        last += first - 1
    user = part(pod, "spec", "securityContext").get("runAsUser")
    if user is None or first <= user <= last:
        return ""
    return (
        f"in namespace {namespace}, OpenShift mostly lets the pods of Jobs run as users {first} to "
        f"{last} alone, and these pods run as user {user}. If nobody has allowed this user to the "
        "namespace's service account, no pod is made, and only events of the Jobs say so. To use a "
        f"user of the namespace: pulumi config set podUser {first}"
    )
