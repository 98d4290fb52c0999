"""Records the API server's answers to one `status` of a run in a file, and replays them later.

A file has the real answers without the parts that `status` never reads: most of the specifications
of pods and of their templates, and who has set which field. Of pods' logs it has the last lines.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from cli.status.judge import RunStatus
from cli.status.snapshot import see_run
from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api, Requests
from infra.kube.objects import Json, part, parts
from infra.kube.record import ALL, SELECTOR, parse_record

FOLDER = Path(__file__).parent / "recorded"
LINES = 30  # how many lines of each pod's log are kept
POD_KEYS = ("nodeName", "containers", "restartPolicy")
CONTAINER_KEYS = ("name", "resources", "env")


@dataclass(frozen=True)
class Asked:
    """One request (`question`: its path and query), and the API server's answer."""

    question: str
    status: int
    date: str
    text: str

    @property
    def answer(self) -> Answer:
        """Return the answer in the form in which the client gives it."""
        return Answer(self.status, self.date, self.text)

    @property
    def body(self) -> Json:
        """Return the JSON object of the answer; empty if the answer is no JSON object."""
        return self.answer.body


def question(path: str, query: dict[str, str]) -> str:
    """Return a path with its query, whose words are sorted."""
    return f"{path}?{urlencode(sorted(query.items()))}" if query else path


class Recording:
    """Passes requests on to a real API server, and keeps its answers."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.asked: list[Asked] = []

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Pass a GET request on, and keep its answer. No other request may come."""
        assert method == "GET", (method, path)
        answer = self.requests.request(method, path, query, body, content_type, seconds)
        asked = Asked(question(path, query), answer.status, answer.date, answer.text)
        self.asked.append(asked)
        return answer


class Replay:
    """Gives the answers of a recording. A request that was not recorded fails."""

    def __init__(self, asked: list[Asked]) -> None:
        self.answers = {each.question: each for each in asked}

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: object,
        content_type: str,
        seconds: float | None = None,
    ) -> Answer:
        """Return the recorded answer. Raises OSError for a request that was not recorded."""
        del body, content_type, seconds
        asked = self.answers.get(question(path, query))
        if method != "GET" or asked is None:
            raise OSError(f"{method} {question(path, query)} was not recorded")
        return asked.answer


def see_only_run(requests: Requests) -> RunStatus:
    """Return the state that `./disttrain status` shows for the only run of a cluster."""
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(requests)
    (record,) = api.list(ALL, SELECTOR)
    status, _ = see_run(api, parse_record(record))
    return status


def trimmed(asked: Asked) -> Asked:
    """Return the answer without the parts that `status` never reads."""
    if asked.question.partition("?")[0].endswith("/log"):
        lines = asked.text.splitlines(keepends=True)
        return Asked(asked.question, asked.status, asked.date, "".join(lines[-LINES:]))
    body = asked.body
    if not body:
        return asked
    return Asked(asked.question, asked.status, asked.date, json.dumps(_slim(body)))


def _slim(body: Json) -> Json:
    if body.get("kind") == "APIResourceList":
        kept = ("name", "kind", "namespaced")
        found = [r for r in parts(body, "resources") if "/" not in str(r["name"])]
        return {**body, "resources": [{key: r[key] for key in kept} for r in found]}
    if "items" in body:
        return {**body, "items": [_slim_object(item) for item in parts(body, "items")]}
    return _slim_object(body)


def _slim_object(item: Json) -> Json:
    slim = cast(Json, _without_templates(item))
    metadata = {k: v for k, v in part(slim, "metadata").items() if k != "managedFields"}
    spec = part(slim, "spec")
    if spec and "containers" in spec:
        spec = {key: spec[key] for key in POD_KEYS if key in spec}
        containers = parts(spec, "containers")
        spec["containers"] = [
            {key: each[key] for key in CONTAINER_KEYS if key in each} for each in containers
        ]
    return {**slim, "metadata": metadata, **({"spec": spec} if spec else {})}


def _without_templates(value: Any) -> Any:
    """Return the value, in which only the metadata of pods' templates is left."""
    if isinstance(value, list):
        return [_without_templates(each) for each in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    given = cast(Json, value)
    if "containers" in part(given, "template", "spec"):
        given = {**given, "template": {"metadata": part(given, "template", "metadata")}}
    return {key: _without_templates(each) for key, each in given.items()}


def write(name: str, state: str, how: str, asked: list[Asked]) -> None:
    """Keep a recording as a file.

    Args:
        name: the name of the file, without its ending.
        state: the state that `./disttrain status` has to show; it is known from what was done.
        how: what was done to the run, for people.
        asked: the answers, which are trimmed.
    """
    answers = [
        {
            "question": each.question,
            "status": each.status,
            "date": each.date,
            **({"json": each.body} if each.body else {"text": each.text.splitlines()}),
        }
        for each in map(trimmed, asked)
    ]
    FOLDER.mkdir(exist_ok=True)
    content = {"state": state, "how": how, "answers": answers}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")


def read(path: Path) -> tuple[str, list[Asked]]:
    """Return the state that `status` has to show, and the recorded answers."""
    content = json.loads(path.read_text())
    return content["state"], [
        Asked(
            each["question"],
            each["status"],
            each["date"],
            json.dumps(each["json"]) if "json" in each else "\n".join(each["text"]),
        )
        for each in content["answers"]
    ]
