"""How the API server is reached: a kubeconfig as text or as a file, and its context."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.kube.errors import KubeconfigError
from infra.kube.objects import parts


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
            KubeconfigError: it cannot be read, is no kubeconfig, or lacks the context.
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
        return content
