"""Checks whether the pods of a run fit into the quotas of their namespace. It changes nothing."""

import re

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, objects_at
from infra.kube.objects import name_of, part
from infra.kube.pods.room import KEYS, PodNeeds
from infra.kube.quantity import amount

QUOTAS = "/api/v1/namespaces/{}/resourcequotas"
# What a quota may demand of pods, and the setting that gives it to them.
LIMIT_KEYS = {"limits.cpu": "cpuLimitPerRank", "limits.memory": "memoryLimitPerRank"}


def check_quotas(api: Api, namespace: str, needs: PodNeeds, found: Findings) -> None:
    """Check that the pods fit into each quota.

    They are compared with all that a quota allows, because what others use now may become free.

    Args:
        api: the cluster.
        namespace: the namespace of the pods.
        needs: what each pod asks for, and how many there are.
        found: each finding is added to it.
    """
    quotas = objects_at(api, QUOTAS.format(namespace))
    if quotas is None:
        found.unseen(f"whether the quotas of namespace {namespace} suffice")
        return
    for quota in quotas:
        spec = part(quota, "spec")
        if spec.get("scopes") or spec.get("scopeSelector"):
            found.notes.append(
                f"quota {name_of(quota)} of namespace {namespace} is only for some pods, and "
                "was not checked"
            )
            continue
        for name, allowed in part(spec, "hard").items():
            problem = _quota_problem(name, str(allowed), needs)
            if problem:
                found.problems.append(
                    f"{problem}: quota {name_of(quota)} of namespace {namespace} allows "
                    f"{allowed} {name} in all. Set less, or ask for a larger quota"
                )


def _quota_problem(name: str, allowed: str, needs: PodNeeds) -> str:
    if name in ("pods", "count/pods"):
        # The pod that prepares the data set has ended before these pods come.
        return f"pods: {needs.pods} cannot be used" if needs.pods > amount(allowed) else ""
    is_limit, resource = name.startswith("limits."), re.sub("^(requests|limits)[.]", "", name)
    wanted = (needs.limits if is_limit else needs.requests).get(resource)
    if wanted is None or amount(wanted) * needs.pods <= amount(allowed):
        return ""
    key = LIMIT_KEYS.get(name) or KEYS.get(resource, resource)
    whats = f"a limit of {wanted} {resource}" if is_limit else f"{wanted} {resource}"
    return f"{key}: {needs.pods} pod{'' if needs.pods == 1 else 's'} with {whats} each"
