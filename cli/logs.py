"""`disttrain logs`: the logs of all pods of a run, however many there are."""

import argparse
import sys
import threading
import time
from contextlib import suppress

from cli.endings import BROKEN_PIPE, close_output, end_in_order
from cli.stack_outputs import RunPlace, run_place
from infra.kube import names
from infra.kube.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.making_place import ENDED, PODS
from infra.kube.objects import Json, name_of, part

POLL_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `disttrain logs`."""
    add = parser.add_argument
    add("--stack", default="", help="whose run (default: the selected stack)")
    add("--tail", type=int, default=-1, metavar="LINES", help="the last lines of each pod alone")
    add("--no-follow", action="store_true", help="end when all that is there has been shown")


def run(arguments: argparse.Namespace) -> int:
    """Exit status: 0 shown, 1 there are no pods.

    Raises:
        ValueError: the stack has no run, or the cluster refuses.
    """
    end_in_order()
    place = run_place(arguments.stack)
    try:
        follower = Follower(place, arguments.tail, follow=not arguments.no_follow)
        return follower.run()
    except BrokenPipeError:
        close_output()
        return BROKEN_PIPE
    except (ApiError, UnreachableError) as reason:
        raise ValueError(str(reason)) from None


class Follower:
    """Follows each pod in a thread; pods that come later are followed too."""

    def __init__(self, place: RunPlace, tail: int, *, follow: bool) -> None:
        self._place = place
        self._follow = follow
        self._query = {"follow": "true" if follow else "false"}
        if tail >= 0:
            self._query["tailLines"] = str(tail)
        self._threads: dict[str, threading.Thread] = {}
        self._ended_at: dict[str, str] = {}  # from there a log goes on after a cut or a restart
        self._printing = threading.Lock()
        self._pipe_is_broken = False

    def run(self) -> int:
        """Returns when all pods have ended, or at once when nothing is to be followed."""
        api = Api(self._place.access)
        collection = PODS.format(self._place.namespace)
        selector = names.training_selector(self._place.owner)
        while True:
            pods = api.list(collection, selector)
            for pod in pods:
                self._begin(pod)
            if self._pipe_is_broken:
                raise BrokenPipeError
            ended = all(part(pod, "status").get("phase") in ENDED for pod in pods)
            if ended or not self._follow:
                break
            time.sleep(POLL_SECONDS)
        for thread in self._threads.values():
            thread.join()
        if self._pipe_is_broken:
            raise BrokenPipeError
        if not pods:
            print(f"{self._place.workload} has no pods", file=sys.stderr)
        return 0 if pods else 1

    def _begin(self, pod: Json) -> None:
        uid = str(pod["metadata"]["uid"])
        started = part(pod, "status").get("phase") not in (None, "Pending")
        known = self._threads.get(uid)
        if started and (known is None or (self._follow and self._is_cut(known, pod))):
            target = (name_of(pod), self._ended_at.get(name_of(pod), ""))
            thread = threading.Thread(target=self._copy, args=target, daemon=True)
            self._threads[uid] = thread
            thread.start()

    def _is_cut(self, thread: threading.Thread, pod: Json) -> bool:
        """Whether a log ended although its pod runs: the connection was cut, or it restarted."""
        return not thread.is_alive() and part(pod, "status").get("phase") == "Running"

    def _copy(self, name: str, since: str) -> None:
        api = Api(self._place.access)  # a thread's own
        from urllib3.exceptions import HTTPError  # here, because `./disttrain doctor` does without

        path = f"{PODS.format(self._place.namespace)}/{name}/log"
        query = self._query | ({"sinceTime": since} if since else {})
        with suppress(OSError, HTTPError, ValueError):
            response = api.client.stream(path, query)
            rest = b""
            for block in response.stream(65536):
                *lines, rest = (rest + block).split(b"\n")
                self._print(name, lines)
            if rest:
                self._print(name, [rest])
        api.get(PODS.format(self._place.namespace) + f"/{name}")  # for the server's clock
        self._ended_at[name] = api.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _print(self, name: str, lines: list[bytes]) -> None:
        text = b"".join(b"[" + name.encode() + b"] " + line + b"\n" for line in lines)
        with self._printing:
            try:
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                self._pipe_is_broken = True
                raise
