"""An answer with status 200 that is no JSON counts as no answer.

It may be from a proxy that wants a login, or cut off. Otherwise it would be taken for an empty
object, and the cluster would seem to have no nodes and no runs.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import UnreachableError
from tests.unit.kube.server import ApiServer, api_of


class Proxy(ApiServer):
    def __init__(self, text: str) -> None:
        self._text = text

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<html><h1>Log in</h1>", "no JSON but <html><h1>Log in</h1>"),
        ('{"items": [{"metadata": ', 'no JSON but {"items": '),
        ("", "no JSON but empty"),
    ],
)
def test_answer_that_is_no_json_says_nothing_of_the_cluster(text: str, words: str) -> None:
    api = api_of(Proxy(text))
    for ask in (lambda: api.list("/api/v1/nodes"), lambda: api.get("/api/v1/nodes/a")):
        with pytest.raises(UnreachableError, match=f"^the answer to GET /api/v1/nodes.*{words}"):
            ask()


def test_log_is_text() -> None:
    assert api_of(Proxy("step 1")).text("/log", {}) == "step 1"
