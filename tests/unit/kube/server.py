"""The base class of the stand-ins for an API server in the unit tests.

Each test defines what its server has. The tests in tests/kube ask a real API server.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError

Json: TypeAlias = dict[str, Any]


class ApiServer:
    """Takes requests, and has a clock that advances only in `sleep`.

    A test also puts the server in place of the module `time`, so that waits take no real time.
    """

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        """Return the answer: an object, a text that is no JSON, or None if nothing is at the path.

        Raises:
            ApiError: the request is refused with this status.
        """
        raise NotImplementedError

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Answer a request; this is the method of `infra.kube.api_server.api.Requests`."""
        del content_type, seconds
        try:
            found = self.answer(method, path, query, body)
        except ApiError as refused:
            said = {"kind": "Status", "message": str(refused)}
            return Answer(refused.status, "", json.dumps(said))
        if found is None:
            return Answer(404, "", json.dumps({"kind": "Status"}))
        return Answer(200, "", found if isinstance(found, str) else json.dumps(found))


def api_of(server: ApiServer) -> Api:
    """Return an API client of the server."""
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    return api
