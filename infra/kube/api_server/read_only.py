"""Lets the Pulumi program ask a cluster: by the quick client, or else by the official one."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from urllib.parse import urlencode

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError
from infra.kube.errors import FORBIDDEN

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"
KEPT = (200, FORBIDDEN, 404)  # other answers may be others a moment later


class ReadOnlyClient(QuickClient):
    """A quick client that refuses to change anything, because a preview must not do so.

    Several checks read the same objects, and a list of all nodes may be large. So it keeps the
    answers to what it has read.
    """

    def __init__(self, access: Access, seconds: float) -> None:
        super().__init__(access, seconds)
        self._read: dict[tuple[str, str, str], Answer] = {}

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Send a GET, unless the answer is known, or a POST that makes no object.

        Such a POST is a question about rights, or a dryRun.
        """
        asks = path.startswith(REVIEWS) or query.get("dryRun") == "All"
        assert method == "GET" or (method == "POST" and asks), "this client only reads"
        key = (method, path, urlencode(query))
        if key in self._read:
            return self._read[key]
        answer = super().request(method, path, query, body, content_type, seconds)
        if method == "GET" and answer.status in KEPT:
            self._read[key] = replace(answer, date="")  # The server's clock goes on meanwhile.
        return answer


@contextmanager
def read_only_api(access: Access, seconds: float) -> Iterator[Api]:
    """The API of a cluster for one look at it.

    A request is sent only once while the server does not answer, and what was read is kept.

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
