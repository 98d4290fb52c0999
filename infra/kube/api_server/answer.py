"""The API server's answer to one request."""

import json
from dataclasses import dataclass
from typing import cast

from infra.kube.objects import Json

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
"""The longest waits for a connection and for an answer."""


@dataclass(frozen=True)
class Answer:
    """The HTTP status, the time and the text of an answer."""

    status: int
    date: str
    """The server's time, as an HTTP date; empty: the answer has none."""
    text: str

    @property
    def body(self) -> Json:
        """The JSON object; an empty one if the answer is not a JSON object."""
        try:
            parsed: object = json.loads(self.text)
        except ValueError:
            return {}
        return cast(Json, parsed) if isinstance(parsed, dict) else {}

    @property
    def is_json(self) -> bool:
        """Whether the text is complete JSON, and not for example a page of HTML."""
        try:
            json.loads(self.text)
        except ValueError:
            return False
        return True
