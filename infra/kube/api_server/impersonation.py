"""The user as whom a kubeconfig asks (`as`, `as-groups` and so on), as headers of each request.

Pure. The official client ignores them, so that everything would be asked and done with other rights
than kubectl and Pulumi have by the same kubeconfig.
"""

from typing import cast
from urllib.parse import quote

from infra.kube.api_server.access import user_of
from infra.kube.errors import KubeconfigError
from infra.kube.objects import Json, part

KEYS = {"as", "as-uid", "as-groups", "as-user-extra"}


def impersonation(content: Json, context: str) -> list[tuple[str, str]]:
    """Headers, of which some have one name; empty: the context's user asks as himself.

    Args:
        content: a kubeconfig.
        context: name of a context; empty: the current one.

    Raises:
        KubeconfigError: groups or the like are named, and no user.
    """
    name, user = user_of(content, context)
    given = sorted(key for key in KEYS if user.get(key))
    if not given:
        return []
    if "as" not in given:
        raise KubeconfigError(
            f"the kubeconfig cannot be used: user {name!r} has {' and '.join(given)} without `as`, "
            "which kubectl refuses too. Add `as` with the name of the user as whom is asked, or "
            f"remove {' and '.join(given)}"
        )
    found = [("Impersonate-User", str(user["as"]))]
    if user.get("as-uid"):
        found.append(("Impersonate-Uid", str(user["as-uid"])))
    groups = cast(list[object], user.get("as-groups") or [])
    found += [("Impersonate-Group", str(group)) for group in groups]
    for key, values in part(user, "as-user-extra").items():
        header = f"Impersonate-Extra-{quote(key, safe='')}"
        found += [(header, str(value)) for value in cast(list[object], values)]
    return found
