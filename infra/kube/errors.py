"""The errors of infra.kube: why a task fails, and what the API server answers."""

FORBIDDEN = 403  # the HTTP status of an ApiError for a request that these credentials may not make


class TaskError(Exception):
    """The task cannot be done. The text names the reason and what to do."""


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used. The text says why."""


class PluginError(KubeconfigError):
    """The credential plugin failed: the program that the kubeconfig names to log the user in.

    The text contains the error message of that program.
    """


class ApiError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, text: str) -> None:
        """Keep the HTTP status and the server's message."""
        super().__init__(text)
        self.status = status


class UnreachableError(Exception):
    """The API server gave no usable answer, so another try may succeed."""
