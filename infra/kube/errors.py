"""How a task of this program fails."""

FORBIDDEN = 403  # status of an ApiError: these credentials may not do that


class TaskError(Exception):
    """The task cannot be done; the text names the reason and what to do."""


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used; the text says why."""


class PluginError(KubeconfigError):
    """The program of the kubeconfig that logs the user in has failed; the text has its words."""


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the HTTP status and the server's words."""
        super().__init__(text)
        self.status = status


class UnreachableError(Exception):
    """The API server gave no answer, or none that counts: trying again may help."""
