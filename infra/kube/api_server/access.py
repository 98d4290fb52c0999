"""How the API server is reached: a kubeconfig as text or as a file, and its context."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.kube.errors import KubeconfigError
from infra.kube.objects import Json, part, parts

PLUGIN_NEEDS = ("apiVersion", "command")
SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}


def line_and_column(error: object) -> str:
    """The line and the column of a YAML error, for a message.

    The parser's own message is not used, because it can contain a piece of the text, and so a
    token.
    """
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""


@dataclass(frozen=True)
class Access:
    """The kubeconfig of a cluster.

    Args:
        kubeconfig: the text of the kubeconfig. Either this or `kubeconfig_path` is given.
        kubeconfig_path: the path of the kubeconfig.
        context: the name of a context in it; empty: the current context.
    """

    kubeconfig: str = ""
    kubeconfig_path: str = ""
    context: str = ""

    def content(self) -> dict[str, Any]:
        """The parsed kubeconfig.

        Raises:
            KubeconfigError: the kubeconfig cannot be read, is not a kubeconfig, has a part of a
                wrong form, lacks the context, or lacks a field of the credential plugin of the
                context's user.
        """
        import yaml  # It is imported here, because `./disttrain doctor` runs without it.

        text = self.kubeconfig
        where = "the kubeconfig of the stack"
        if self.kubeconfig_path:
            where = f"kubeconfig {self.kubeconfig_path}"
            try:
                text = Path(self.kubeconfig_path).expanduser().read_text()
            except OSError as error:
                raise KubeconfigError(f"{where} cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise KubeconfigError(f"{where} is no text") from None
        try:
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C is ten times faster
            parsed: object = yaml.load(text, Loader=loader)
        except yaml.YAMLError as error:
            raise KubeconfigError(f"{where} is no YAML{line_and_column(error)}") from None
        if not isinstance(parsed, dict) or "clusters" not in parsed:
            raise KubeconfigError(f"{where} is not a kubeconfig: it names no clusters")
        content = cast(dict[str, Any], parsed)
        if wrong := _wrong_form(content):
            raise KubeconfigError(
                f"{where} cannot be used: {wrong}. Correct it, or have the kubeconfig written anew"
            )
        names = [str(each.get("name")) for each in parts(content, "contexts")]
        if self.context and self.context not in names:
            raise KubeconfigError(
                f"{where} has no context {self.context!r}; it has {', '.join(names) or 'none'}. If "
                "it was renamed, give it that name again; or make the new one the current context, "
                "or name it in kubeContext if that is set, and run `pulumi up`, which notes it"
            )
        if lacks := _missing_of_plugin(content, self.context):
            raise KubeconfigError(f"{where} cannot be used: {lacks}")
        return content


def _wrong_form(content: Json) -> str:
    """Which part of the kubeconfig has a wrong form, in words; empty: none. This function is pure.

    Values are not shown, because they can be secrets.
    """
    for section, inner in SECTIONS.items():
        entries: object = content.get(section) or []
        if not isinstance(entries, list):
            return f"`{section}` is no list"
        for number, entry in enumerate(cast(list[object], entries), 1):
            if not isinstance(entry, dict):
                return f"entry {number} of `{section}` is no object"
            known = cast(Json, entry)
            name, inside = known.get("name"), known.get(inner)
            if isinstance(name, list | dict):
                return f"`name` of entry {number} of `{section}` is no text"
            if inside is not None and not isinstance(inside, dict):
                return f"`{inner}` of {name!r} in `{section}` is no object"
    for context in parts(content, "contexts"):
        for key in ("cluster", "user"):
            if isinstance(part(context, "context").get(key), list | dict):
                return f"`{key}` of context {context.get('name')!r} is no text"
    is_text = not isinstance(content.get("current-context"), list | dict)
    return "" if is_text else "`current-context` is no text"


def user_of(content: Json, context: str) -> tuple[str, Json]:
    """The name and the content of a context's user; the content is empty if there is none.

    This function is pure.

    Args:
        content: the parsed kubeconfig.
        context: the name of a context; empty: the current one.
    """
    chosen = context or content.get("current-context")
    contexts = {each.get("name"): part(each, "context") for each in parts(content, "contexts")}
    name = contexts.get(chosen, {}).get("user")
    users = {each.get("name"): part(each, "user") for each in parts(content, "users")}
    return str(name), users.get(name, {})


def plugin_command(content: Json, context: str) -> str:
    """The command of the credential plugin of a context's user; empty: it has none.

    This function is pure.
    """
    return str(part(user_of(content, context)[1], "exec").get("command") or "")


def _missing_of_plugin(content: Json, context: str) -> str:
    """Which fields the credential plugin of the context's user lacks, in words.

    This function is pure.

    The text is empty if it lacks none, or if the user has no plugin. kubectl refuses such a plugin
    too. The official client would go on without a login.
    """
    name, user = user_of(content, context)
    if user.get("exec") is None:
        return ""
    plugin: object = user["exec"]
    given = cast(Json, plugin) if isinstance(plugin, dict) else {}
    missing = [key for key in PLUGIN_NEEDS if not given.get(key)]
    if not missing:
        return ""
    return (
        f"`exec` of user {name!r} has no {' and no '.join(missing)}. Add it, as the documentation "
        "of the program that logs you in says, or have the kubeconfig written anew. The apiVersion "
        "is mostly client.authentication.k8s.io/v1"
    )
