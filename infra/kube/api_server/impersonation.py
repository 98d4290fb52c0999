"""Makes HTTP headers from the impersonation in a kubeconfig (`as`, `as-groups` and so on).

The official client ignores these keys. Without the headers, this program would act with other
rights than kubectl and Pulumi have with the same kubeconfig. All functions are pure.
"""

from typing import cast
from urllib.parse import quote

from infra.kube.api_server.access import user_of
from infra.kube.errors import KubeconfigError
from infra.kube.objects import Json, part

KEYS = {"as", "as-uid", "as-groups", "as-user-extra"}


def impersonation(content: Json, context: str) -> list[tuple[str, str]]:
    """The headers for each request; empty: the context's user impersonates nobody.

    Several headers may have the same name.

    Args:
        content: the parsed kubeconfig.
        context: the name of a context; empty: the current one.

    Raises:
        KubeconfigError: `as` is missing beside `as-groups` or another of these keys.
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
