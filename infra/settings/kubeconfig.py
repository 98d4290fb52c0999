"""Reads from a kubeconfig at which address its cluster is."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import yaml

from infra.kube.api_server.access import line_and_column, user_of
from infra.kube.objects import part
from infra.settings.local_path import why_unreadable
from infra.settings.secret import is_url
from infra.settings.setting_error import SettingError

_OTHER_FILE = "Set the path of a kubeconfig that can be read"
_ONE_FILE = "Put them into one, and set its path: kubectl config view --raw --flatten >FILE"
_OTHER_CONTEXT = "Set kubeContext to one of its contexts, or the path of another kubeconfig"


def api_server_host(path: Path, context: str) -> str:
    """Return the host of the API server; in a cluster of one node it is the node.

    It has the arguments of `api_server` and raises the same errors.
    """
    host = urlsplit(api_server(path, context)).hostname
    assert host is not None
    return host


def api_server(path: Path, context: str) -> str:
    """Return the address (URL) of the API server.

    Args:
        path: a kubeconfig file.
        context: one of its contexts; empty: its current one.

    Raises:
        SettingError: the file cannot be read, or has no such context, cluster or server.
    """
    config = _content(path)
    name = context or _current_context(config)
    cluster = _named(config, "contexts", name).get("cluster")
    if not cluster:
        raise SettingError(f"its context {name!r} names no cluster", _OTHER_CONTEXT)
    server = str(_named(config, "clusters", str(cluster)).get("server", ""))
    if not is_url(server):
        raise SettingError(f"its context {name!r} leads to no server", _OTHER_CONTEXT)
    return server


def current_context(path: Path) -> str:
    """Return the name of a kubeconfig's current context; empty if it has none.

    Raises:
        SettingError: the file cannot be read.
    """
    return _current_context(_content(path))


def check_paths(path: Path, context: str, project: Path) -> None:
    """Refuse paths in the kubeconfig that begin at its folder, as `kubectl config` writes them.

    Pulumi's Kubernetes provider takes them from the project's folder, in which it runs.

    Args:
        path: a kubeconfig file.
        context: one of its contexts; empty: its current one.
        project: the project's folder.

    Raises:
        SettingError: the context's cluster or user has such a path.
    """
    if path.parent.resolve() == project.resolve():
        return
    config = _content(path)
    cluster = _named(config, "contexts", context or _current_context(config)).get("cluster")
    user = user_of(config, context)[1]
    command = str(part(user, "exec").get("command") or "")
    found = {
        **_paths(_named(config, "clusters", str(cluster)), ("certificate-authority",)),
        **_paths(user, ("client-certificate", "client-key", "tokenFile")),
        **({"exec.command": command} if "/" in command else {}),
    }
    for key, written in found.items():
        if not Path(written).is_absolute():
            raise SettingError(
                f"its {key} is {written!r}, a path from the folder of the file, which Pulumi's "
                "Kubernetes provider takes from the folder of this project",
                "Write the whole path there, or set a file that contains the certificates: "
                "kubectl config view --raw --flatten >FILE",
            )


def _paths(section: dict[str, Any], keys: Iterable[str]) -> dict[str, str]:
    """Return the paths that count, which are those without their content beside them."""
    return {
        key: str(section[key]) for key in keys if section.get(key) and f"{key}-data" not in section
    }


def _current_context(config: dict[str, Any]) -> str:
    return str(config.get("current-context") or "")


def _content(path: Path) -> dict[str, Any]:
    try:
        content: object = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        if ":" in str(path) and not path.exists():
            raise SettingError("it names several files, and one is read", _ONE_FILE) from None
        reason = f"it cannot be read ({why_unreadable(error)})"
        raise SettingError(reason, _OTHER_FILE) from None
    except yaml.YAMLError as error:
        raise SettingError(f"it is no YAML{line_and_column(error)}", _OTHER_FILE) from None
    if not isinstance(content, dict):
        raise SettingError("it is not a kubeconfig", _OTHER_FILE)
    return cast(dict[str, Any], content)


def _named(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    """Return the content of the entry with this name in a section, such as `contexts`.

    The content is empty if the entry has none that is an object.
    """
    found: object = config.get(section) or []
    if not isinstance(found, list) or not all(isinstance(e, dict) for e in cast(list[Any], found)):
        raise SettingError(f"its {section} are not a list of objects", _OTHER_FILE)
    entries = cast(list[dict[str, Any]], found)
    for entry in entries:
        if entry.get("name") == name:
            content: object = entry.get(section.removesuffix("s"))
            return cast(dict[str, Any], content) if isinstance(content, dict) else {}
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise SettingError(f"it has no {name!r} among its {section}, but: {known}", _OTHER_CONTEXT)
