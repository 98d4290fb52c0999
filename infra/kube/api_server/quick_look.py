"""Questions of the Pulumi program, asked by the quick client where it knows the kubeconfig."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"


class OnlyLooks(QuickClient):
    """A client that changes nothing: a preview must not."""

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """A GET, or a POST which makes no object: about rights, or never carried out (dryRun)."""
        asks = path.startswith(REVIEWS) or query.get("dryRun") == "All"
        assert method == "GET" or (method == "POST" and asks), "this client only looks"
        return super().request(method, path, query, body, content_type, seconds)


@contextmanager
def quick_look(access: Access, seconds: float) -> Iterator[Api]:
    """The cluster, of which each question is asked once.

    Args:
        access: how it is reached.
        seconds: for each step of a connection and for an answer of the quick client.

    Raises:
        ValueError: the kubeconfig cannot be read, or its credential plugin has failed.
        OSError: a file or a credential plugin that it names is missing.
    """
    api = Api(access, patience_seconds=0)
    try:
        quick = OnlyLooks(access, seconds)
    except UnsupportedError:  # then the official client is imported
        yield api
        return
    with closing(quick):
        api.use(quick)
        yield api
