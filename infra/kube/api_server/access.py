"""How the API server is reached: a kubeconfig as text or as a file, and its context."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.kube.errors import KubeconfigError
from infra.kube.objects import Json, part, parts

PLUGIN_NEEDS = ("apiVersion", "command")


def place(error: object) -> str:
    """Where a text is no YAML; the parser's own words can hold a piece of it, such as a token."""
    mark = getattr(error, "problem_mark", None)
    return f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""


@dataclass(frozen=True)
class Access:
    """Either `kubeconfig` (its text) or `kubeconfig_path` is given; an empty context means the
    kubeconfig's current one.
    """

    kubeconfig: str = ""
    kubeconfig_path: str = ""
    context: str = ""

    def content(self) -> dict[str, Any]:
        """The parsed kubeconfig.

        Raises:
            KubeconfigError: it cannot be read, is no kubeconfig, lacks the context, or says too
                little of the program that logs the context's user in.
        """
        import yaml  # here, because `./disttrain doctor` does without

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
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C reads ten times faster
            parsed: object = yaml.load(text, Loader=loader)
        except yaml.YAMLError as error:
            raise KubeconfigError(f"{where} is no YAML{place(error)}") from None
        if not isinstance(parsed, dict) or "clusters" not in parsed:
            raise KubeconfigError(f"{where} is not a kubeconfig: it names no clusters")
        content = cast(dict[str, Any], parsed)
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


def user_of(content: Json, context: str) -> tuple[str, Json]:
    """Name and content of a context's user; an empty user where there is none. Pure.

    Args:
        content: a kubeconfig.
        context: name of a context; empty: the current one.
    """
    chosen = context or content.get("current-context")
    contexts = {each.get("name"): part(each, "context") for each in parts(content, "contexts")}
    name = contexts.get(chosen, {}).get("user")
    users = {each.get("name"): part(each, "user") for each in parts(content, "users")}
    return str(name), users.get(name, {})


def plugin_command(content: Json, context: str) -> str:
    """The program by which a context's user logs in; empty: there is none. Pure."""
    return str(part(user_of(content, context)[1], "exec").get("command") or "")


def _missing_of_plugin(content: Json, context: str) -> str:
    """What the credential plugin of the context's user lacks; empty: nothing, or there is none.

    kubectl refuses it too. The official client would go on without a login. Pure.
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
