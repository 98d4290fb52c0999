"""Checks, before each start of the ranks, that all nodes share one volume and can write to it.

A node writes a file (files.py) before it joins the others, and its message Hello names the file.
The round begins when all nodes have joined, so by then all files must exist. Node 0's message Start
names them, and each node looks for the files of the others before it starts its ranks. Then it
sends its measurements to node 0. When all nodes have seen the files, node 0 removes them, and keeps
the measurements.

A node whose check fails ends the round as a failed rank does, and all others receive the reason.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from trainer.checkpoint.durable import write_json
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.events.writers import shortened
from trainer.launch.exit_codes import ExitCode
from trainer.launch.membership import RoundMember
from trainer.launch.messages import Proven
from trainer.launch.status_files import ExitReport
from trainer.launch.stop_request import StopRequest
from trainer.volume import files, words
from trainer.volume.figures import Figures, figures_line
from trainer.volume.limit import Interrupted, within
from trainer.volume.mount import mount_here

FILE = "volume-check.json"
MOST_LOOKED_FOR = 64
_GRACE_SECONDS = 5.0  # the time after the limit for the last look
_PAUSE_SECONDS = 0.05
_TOKEN_BYTES = 4


class VolumeProof:
    """One node's part of the check."""

    def __init__(
        self,
        run_dir: Path,
        node: int,
        limit_seconds: int,
        say: Callable[[str], None],
        events: EventLog,
        stop: StopRequest,
    ):
        """
        Args:
            run_dir: The folder of the run, on the volume.
            node: The rank of this node.
            limit_seconds: The longest wait for a write, and for the files of the other nodes. With
                0 nothing is checked.
            say: Prints a line.
            events: The log of this node's events.
            stop: The request to stop, which ends a wait.
        """
        self._folder, self._node, self._limit = run_dir, node, limit_seconds
        self._say, self._events, self._stop = say, events, stop
        self._token, self._mount = "", ""
        self._written: files.Written | None = None
        self._failed: ExitReport | None = None
        self._tokens: Mapping[int, str] = {}

    def write(self) -> str:
        """Write this node's file for the next round, and return its token.

        If the write fails, the token is empty. The node joins the others nevertheless. Then `prove`
        returns the reason, so that all nodes receive it.
        """
        if not self._limit:
            return ""
        self._token, self._failed = secrets.token_hex(_TOKEN_BYTES), None
        self._mount = self._mount or mount_here(self._folder)
        act = partial(files.write_proof, self._folder, self._node, self._token)
        try:
            self._written = within(self._limit, act, lambda: self._stop.requested)
        except Interrupted:
            return ""
        except TimeoutError:
            self._fails(words.no_answer(self._folder, self._mount, "a write", self._limit))
        except files.WriteError as error:
            self._fails(words.write_failed(self._folder, self._mount, error))
        if self._failed is None:
            return self._token
        self._say(f"{self._failed.reason}; the other nodes hear of it when they have joined")
        return ""

    def prove(self, member: RoundMember, tokens: Mapping[int, str]) -> ExitReport | None:
        """Look for the files of the round's other nodes, and send the measurements to node 0.

        Args:
            member: This node's membership in the round.
            tokens: The tokens of all nodes of the round, by rank. The token of a node that could
                not write is empty.

        Returns:
            Why this node ends the round, or None if its ranks may start.
        """
        if not self._limit:
            return None
        if self._failed is not None:
            return self._failed
        # The tokens come from other machines and become parts of paths, so they are checked.
        self._tokens = {node: token if token.isalnum() else "" for node, token in tokens.items()}
        lost: ExitReport | None = None

        def is_over() -> bool:
            nonlocal lost
            lost = lost or member.poll_lost()
            return lost is not None or self._stop.requested

        begin, over = time.monotonic(), threading.Event()

        def goes_on() -> bool:
            return not over.wait(_PAUSE_SECONDS) and time.monotonic() < begin + self._limit

        try:
            wait = self._limit + _GRACE_SECONDS
            missing = within(wait, partial(self._look, goes_on), is_over)
        except Interrupted:
            return lost or ExitReport(ExitCode.PREEMPTED, "stopped by a signal before the start")
        except TimeoutError:
            return _report(words.no_answer(self._folder, self._mount, "a look", self._limit))
        except OSError as error:
            reason = f"the volume cannot be read: {self._folder}: {error}"
            return ExitReport(ExitCode.RETRYABLE, reason)
        finally:
            over.set()  # This also ends a look whose result is no longer needed.
        if self._node in missing:
            return _report(words.own_file_gone(self._folder, self._mount))
        if missing:
            return _report(words.not_seen(self._folder, self._mount, missing, self._limit))
        assert self._written is not None
        figures = Figures(
            self._written.write_seconds,
            self._written.rename_seconds,
            time.monotonic() - begin,
            self._mount,
        )
        self._events.write(
            Name.VOLUME_PROVEN,
            nodes=len(tokens),
            **{name: _rounded(value) for name, value in asdict(figures).items()},
        )
        member.report_proven(_message(figures))
        return None

    def all_proven(self, told: Mapping[int, Proven]) -> None:
        """Remove the files and keep the measurements, once all nodes have seen the files.

        Only node 0 calls this.
        """
        nodes = {node: _figures(message) for node, message in sorted(told.items())}
        rows = [
            {"node": node, **{name: _rounded(value) for name, value in asdict(each).items()}}
            for node, each in nodes.items()
        ]
        try:
            for node, token in self._tokens.items():
                files.remove_proof(self._folder, node, token)
            if len(nodes) > 1:  # With train.nodes_min there may be only one node.
                self._say(figures_line(nodes))
                write_json(self._folder / FILE, {"at": round(time.time(), 3), "nodes": rows})
        except OSError as error:
            self._say(f"warning: the figures of the volume cannot be kept: {error}")

    def withdraw(self) -> None:
        """Remove this node's file. Call this when the round is over, or if it has not begun."""
        if self._token:
            with contextlib.suppress(OSError):  # The next attempt removes it.
                files.remove_proof(self._folder, self._node, self._token)

    def run_is_finished(self) -> None:
        """Remove the files that any node has left. Call this when the run is finished."""
        if self._limit:
            with contextlib.suppress(OSError):  # The run is finished nevertheless.
                files.remove_all(self._folder)

    def _look(self, goes_on: Callable[[], bool]) -> dict[int, int]:
        """Return the nodes whose files are missing, each with its error.

        This node's own file is checked first, without a wait.
        """
        own = {self._node: self._token}
        files.remove_others(self._folder, self._node, self._token)
        if gone := files.look_for(self._folder, own, lambda: False):
            return gone
        # A node that could not write has no token. The reason that it sends ends this look.
        others = {node: self._tokens[node] for node in looked_for(self._node, [*self._tokens])}
        return files.look_for(self._folder, others, goes_on)

    def _fails(self, how: tuple[ExitCode, str]) -> None:
        self._failed = _report(how)


def looked_for(node: int, nodes: Sequence[int]) -> list[int]:
    """Return the nodes whose files `node` looks for: all others, or in a large run some of them.

    With 1,000 nodes, a million looks would keep a file server busy for minutes. So a node looks for
    the files of the nodes that follow it, around the circle, and for that of the first node. If a
    node sees the first node's file, and its neighbours see its own file, it shares one folder with
    all.
    """
    place = nodes.index(node)
    after = [*nodes[place + 1 :], *nodes[:place]]
    chosen = after[:MOST_LOOKED_FOR]
    return chosen if nodes[0] in (node, *chosen) else [*chosen, nodes[0]]


def _report(how: tuple[ExitCode, str]) -> ExitReport:
    return ExitReport(*how)


def _rounded(value: float | str) -> float | str:
    return round(value, 6) if isinstance(value, float) else value


def _message(figures: Figures) -> Proven:
    micro = 1_000_000
    return Proven(
        round(figures.write_seconds * micro),
        round(figures.rename_seconds * micro),
        round(figures.visible_seconds * micro),
        figures.file_system,
    )


def _figures(message: Proven) -> Figures:
    micro = 1_000_000
    return Figures(
        message.write_microseconds / micro,
        message.rename_microseconds / micro,
        message.visible_microseconds / micro,
        shortened(message.file_system),
    )
