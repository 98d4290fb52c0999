"""Lets the Pulumi program ask a cluster: by the quick client, or else by the official one."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"


class ReadOnlyClient(QuickClient):
    """A quick client that refuses to change anything, because a preview must not do so."""

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Send a GET, or a POST that makes no object: a question about rights, or a dryRun."""
        asks = path.startswith(REVIEWS) or query.get("dryRun") == "All"
        assert method == "GET" or (method == "POST" and asks), "this client only reads"
        return super().request(method, path, query, body, content_type, seconds)


@contextmanager
def read_only_api(access: Access, seconds: float) -> Iterator[Api]:
    """The API of a cluster, which sends each request only once while the server does not answer.

    Args:
        access: how the cluster is reached.
        seconds: the longest wait of the quick client for each step of a connection and for an
            answer.

    Raises:
        ValueError: the kubeconfig cannot be read, or its credential plugin has failed.
        OSError: a file or a credential plugin that the kubeconfig names is missing.
    """
    api = Api(access, patience_seconds=0)
    try:
        quick = ReadOnlyClient(access, seconds)
    except UnsupportedError:  # Only the official client can use this kubeconfig.
        yield api
        return
    with closing(quick):
        api.use(quick)
        yield api
