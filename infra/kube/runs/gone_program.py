"""A program for a pod with the volume: it finds out how a run ended, from the logs in its folder.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of this
project. Its argument is the run's folder. It prints one line of JSON with the fields of `End`.
"""

import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

LOG_BYTES = 1 << 20
# A line of trainer/launch/run_log.py that no rank has written; it has `-` instead of a rank.
LINE = re.compile(r"(?P<at>\S+) \d+ - \[node \d+\] (?P<text>.*)")
FINISHED = re.compile(r"run \S+ is finished: (?P<words>.*)")
FAILED = re.compile(r"(?:fatal|giving up for now): (?P<words>.*)")
GOES_ON = re.compile(r"round \d+: ")


@dataclass(frozen=True)
class End:
    """How a node ended, as its log reports it.

    Args:
        state: `finished` or `failed`; empty: the log reports neither.
        words: the text of the line of the log that reports the end.
        at: the time of that line; without a state, the time when the node began its last round.
    """

    state: str = ""
    words: str = ""
    at: str = ""


def how_it_ended(run: Path) -> End:
    """How the run ended, as the log of node 0 reports it.

    If node 0's log reports no end, another node may have ended the run by a fatal error of its own.
    Then the answer comes from that node's log.
    """
    logs = sorted((run / "logs").glob("node-*.log"))
    if not logs:  # The nodes could not write their logs.
        return End("finished") if (run / "done.json").exists() else End()
    first, *others = [end_of(path) for path in logs]
    if first.state:
        return first
    failed = [end for end in others if end.state == "failed" and end.at >= first.at]
    return failed[0] if failed else End()


def end_of(path: Path) -> End:
    """The end that a node's log reports last.

    If the node began another round after that, the end does not count.
    """
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
    """The newest lines of the entrypoint in a node's log, each as its time and its text."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [(found["at"], found["text"]) for line in lines if (found := LINE.match(line))]


if __name__ == "__main__":
    print(json.dumps(asdict(how_it_ended(Path(sys.argv[1])))))
