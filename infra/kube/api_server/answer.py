"""What the API server said to one request."""

import json
from dataclasses import dataclass
from typing import cast

from infra.kube.objects import Json

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
"""The longest wait for a connection, and for an answer."""


@dataclass(frozen=True)
class Answer:
    """Status, clock and text."""

    status: int
    date: str
    """The server's clock, as an HTTP date; empty when it gave none."""
    text: str

    @property
    def body(self) -> Json:
        """The JSON object; empty where the answer is none."""
        try:
            parsed: object = json.loads(self.text)
        except ValueError:
            return {}
        return cast(Json, parsed) if isinstance(parsed, dict) else {}

    @property
    def is_json(self) -> bool:
        """Whether it is JSON: no page of HTML, and not cut off in its middle."""
        try:
            json.loads(self.text)
        except ValueError:
            return False
        return True
