"""A stand-in for an API server: what those of the unit tests have in common.

Each test says what its server has. tests/kube asks a real one.
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
    """Takes requests and has a clock, which goes on only where somebody waits.

    A test puts it in the place of the module `time`, too.
    """

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        """An object, a text that is no JSON, or None: it is not there.

        Raises:
            ApiError: it is refused with this status.
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
        """As `infra.kube.api_server.api.Requests` wants it."""
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
    """A client of the server."""
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    return api
