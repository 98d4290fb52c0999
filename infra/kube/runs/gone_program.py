"""Runs inside a pod on the volume: how did the run of a folder end?

It is sent as text to `python3 -c`, so it uses the standard library alone and imports nothing of
this project. It gets the run's folder and prints one line of JSON: `state` is `finished`, `failed`
or empty, and `words` are those of the node that has said so.
"""

import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

LOG_BYTES = 1 << 20
LINE = re.compile(r"(?P<at>\S+) \d+ - \[node \d+\] (?P<text>.*)")  # `-`: of no rank
FINISHED = re.compile(r"run \S+ is finished: (?P<words>.*)")
FAILED = re.compile(r"(?:fatal|giving up for now): (?P<words>.*)")
GOES_ON = re.compile(r"round \d+: ")


@dataclass(frozen=True)
class End:
    """How a node has ended, and when it said so; without a state, when it began its last round."""

    state: str = ""
    words: str = ""
    at: str = ""


def how_it_ended(run: Path) -> End:
    """What node 0 has said last, or another node where a fatal error of its own ended them all."""
    logs = sorted((run / "logs").glob("node-*.log"))
    if not logs:  # they could not be written
        return End("finished") if (run / "done.json").exists() else End()
    first, *others = [end_of(path) for path in logs]
    if first.state:
        return first
    failed = [end for end in others if end.state == "failed" and end.at >= first.at]
    return failed[0] if failed else End()


def end_of(path: Path) -> End:
    """The last line that says an end, if the node began no round after it."""
    found = End()
    for at, text in own_lines(path):
        if said := FINISHED.match(text):
            found = End("finished", said["words"], at)
        elif said := FAILED.match(text):
            found = End("failed", said["words"], at)
        elif GOES_ON.match(text):
            found = End(at=at)
    return found


def own_lines(path: Path) -> list[tuple[str, str]]:
    """What the entrypoint of a node has written last, with the times."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [(found["at"], found["text"]) for line in lines if (found := LINE.match(line))]


if __name__ == "__main__":
    print(json.dumps(asdict(how_it_ended(Path(sys.argv[1])))))
