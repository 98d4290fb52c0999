"""`python -m cli.verify.at_up verify create`: what `pulumi up` runs with `verify: after`.

Its job comes as JSON by standard input, as for the programs of infra.kube.
"""

import sys
import time
from collections.abc import Callable

from cli.check import Result
from cli.report import Report
from cli.stack_outputs import RunPlace
from cli.verify.judge import judge
from cli.verify.look import gather
from infra.kube.__main__ import run_task
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.say import say

PATIENCE_SECONDS = 180.0
PAUSE_SECONDS = 3.0


def create(job: Job, api: Api) -> None:
    """Look until no point is wrong; what cannot be checked yet is shown and is no error.

    Raises:
        TaskError: a point is still wrong after PATIENCE_SECONDS.
        ApiError, UnreachableError: the cluster refuses or does not answer.
    """
    place = RunPlace(
        access=job.access, namespace=job.namespace, owner=job.owner, **job.mapping("place")
    )
    report = patiently(lambda: judge(gather(api, place)), place.run_path.rpartition("/")[2])
    say(report.text(everything=True))
    if report.exit_code("error"):
        raise TaskError(
            "verify: after, and a point is wrong. The run itself continues. Fix the problem and "
            "run pulumi up again, or check again with ./disttrain verify"
        )


def patiently(look: Callable[[], list[Result]], run: str) -> Report:
    """The first report without an error, or the last one after PATIENCE_SECONDS.

    A run that has just made its first step may still be about to write its first line.
    """
    begin = time.monotonic()
    while True:
        results = look()
        seconds = time.monotonic() - begin
        report = Report(f"run {run}", results, seconds, title="verify")
        if not report.exit_code("error") or seconds >= PATIENCE_SECONDS:
            return report
        time.sleep(PAUSE_SECONDS)


def main(words: list[str]) -> int:
    """The exit status. Nothing is made, so `delete` has nothing to remove."""
    if words == ["verify", "delete"]:
        return 0
    assert words == ["verify", "create"]
    return run_task(create)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
