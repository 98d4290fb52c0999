"""Finds out which transport the ranks of this node really use to reach other ranks, and reports it.

With `train.transport_policy: stop`, a transport that the network profile does not ask for ends the
run.

NCCL falls back to TCP sockets without a warning if it cannot use a fast network. Its lines about
that go to a separate file of each process in the pod, so that they do not fill the log. The files
are read when the ranks have stepped, and again a few times if they do not show the transport then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainer.config import RunConfig
from trainer.events.event import Name
from trainer.events.log import EventLog
from trainer.launch.exit_codes import ExitCode
from trainer.launch.membership import Round
from trainer.launch.node import Node
from trainer.launch.status_files import ExitReport, StatusFiles
from trainer.monitoring import families as names
from trainer.monitoring.text import Sample
from trainer.transport import asked as question
from trainer.transport.asked import FILE_VARIABLE, OWN_VARIABLES
from trainer.transport.lines import SOCKET, Transport, read_transport

SUBSYSTEMS = "INIT,ENV,NET"
MOST_BYTES = 1 << 20  # so much of a file is read; what is needed is near its begin
WITHOUT_STEP_SECONDS = 45.0  # if the first step takes longer, the files are read before it
BETWEEN_SECONDS = 5.0  # between two readings
LONGEST_SECONDS = 60.0  # so long after the first step the files are read again
REPEAT_SECONDS = 300.0  # a warning is repeated this often, because `status` reads the last lines
_OWN = "NCCL_DEBUG is set by podEnvironment or the image, so NCCL prints as that says"


class TransportWatch:
    """Reads and reports the transport of this node's ranks in each round."""

    def __init__(
        self,
        config: RunConfig,
        node: Node,
        status: StatusFiles,
        events: EventLog,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._node, self._status = config, node, status
        self._events, self._say, self._clock = events, say, clock
        self._asked: tuple[str, ...] = ()
        self._here: Round | None = None
        self._interface, self._has_own = "", False
        self._found: Mapping[int, Transport] = {}
        self._due = self._last = math.inf
        self._tell_bad_at = math.inf  # from then on without the lines of all ranks
        self._said, self._repeat_at = "", math.inf

    def variables(self, environment: Mapping[str, str], local_rank: int) -> dict[str, str]:
        """Return the variables that let a rank's NCCL write its lines to a file.

        The result is empty if `environment` sets one of these variables, or if NCCL is not used.
        """
        may_have_nccl = self._config.has_program or self._config.train.backend != "gloo"
        if not may_have_nccl or any(name in environment for name in OWN_VARIABLES):
            return {}
        path = self._status.nccl_file(local_rank)
        level = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": SUBSYSTEMS}
        return {**level, FILE_VARIABLE: f"{path}.%p"}

    def begins(self, here: Round, environments: Sequence[Mapping[str, str]]) -> None:
        """Prepare for a round whose ranks were started.

        Args:
            here: The round.
            environments: The environment of each local rank.
        """
        self._here, self._found, self._said = here, {}, ""
        self._asked = question.asked_of(environments[0].get(question.VARIABLE, ""))
        self._interface = environments[0].get("GLOO_SOCKET_IFNAME", "")
        ours = str(self._status.nccl_file(0))
        self._has_own = not environments[0].get(FILE_VARIABLE, "").startswith(ours)
        self._due, self._last = self._clock() + WITHOUT_STEP_SECONDS, math.inf
        self._tell_bad_at = self._due
        self._repeat_at = math.inf
        if here.world_size == 1:  # the only rank has no peer
            self._due = math.inf

    def poll(self, has_stepped: bool) -> ExitReport | None:
        """Read the files when it is time to, and report the transport.

        Call this several times a second while the ranks run.

        Args:
            has_stepped: Whether all ranks of this node have stepped.

        Returns:
            Why the run has to end, if `transport_policy` is `stop` and the network profile does not
            ask for the transport that was found; else None.
        """
        now = self._clock()
        if has_stepped and self._last == math.inf and self._due != math.inf:
            self._due, self._last = now, now + LONGEST_SECONDS
        if now >= self._repeat_at:
            self._repeat_at = now + REPEAT_SECONDS
            self._say(self._said)
        if now < self._due:
            return None
        try:
            found = self._read()
        except OSError as error:
            self._due = math.inf
            self._say(f"{question.NOT_KNOWN}NCCL's lines cannot be read: {error}")
            return None
        is_whole = len(found) >= self._node.local_ranks and all(
            map(question.is_known, found.values())
        )
        is_over = is_whole or now >= self._last
        is_bad = question.of_node(found, self._asked) is False
        if not (has_stepped or is_bad) and any(t.library == "gloo" for t in found.values()):
            self._due = now + BETWEEN_SECONDS  # gloo writes no lines; a step shows that it connects
            return None
        self._due = math.inf if has_stepped and is_over else now + BETWEEN_SECONDS
        if is_whole or (is_over and found) or (is_bad and now >= self._tell_bad_at):
            return self._tell(found, is_bad=is_bad)
        if is_over and has_stepped and self._has_own and self._uses_nccl:
            self._say(f"{question.NOT_KNOWN}{_OWN}; ./disttrain verify reads the log")
        return None

    def ended(self) -> None:
        """Forget the transport, because no rank runs any more. The next round may have another."""
        self._found, self._due, self._repeat_at = {}, math.inf, math.inf

    def samples(self) -> Sequence[Sample]:
        """Return the samples for Prometheus."""
        found, asked = self._found, self._asked
        samples = [Sample(names.TRANSPORT, 1, labels_of(rank, t)) for rank, t in found.items()]
        answer = question.of_node(found, asked)
        if answer is not None:
            samples.append(Sample(names.AS_ASKED, answer, {"asked": ",".join(asked)}))
        return samples

    @property
    def _uses_nccl(self) -> bool:
        """Whether the ranks surely use NCCL; if this is False, they may use it nevertheless."""
        return not self._config.has_program and self._config.train.backend == "nccl"

    def _read(self) -> dict[int, Transport]:
        assert self._here is not None
        count, first = self._node.local_ranks, self._here.first_rank
        own_trainer = not self._config.has_program
        if self._has_own and not (own_trainer and self._config.train.backend == "gloo"):
            return {}
        if self._config.has_program and self._config.program.per == "node":
            each = [read_transport(lines_of(path)) for path in self._files(0)]
            return {t.rank: t for t in each if t.rank is not None}
        found = dict[int, Transport]()
        for local_rank in range(count):
            paths = self._files(local_rank)
            lines = [line for path in paths for line in lines_of(path)]
            if paths or self._uses_nccl:
                found[first + local_rank] = read_transport(lines)
        if not found and own_trainer:
            machines = len(self._here.nodes)
            devices = (self._interface,) if self._interface else ()
            gloo = Transport((SOCKET,), devices, machines=machines, library="gloo")
            found = {first + local_rank: gloo for local_rank in range(count)}
        return found

    def _files(self, local_rank: int) -> list[Path]:
        pattern = self._status.nccl_file(local_rank)
        return sorted(pattern.parent.glob(f"{pattern.name}.*"))

    def _tell(self, found: Mapping[int, Transport], is_bad: bool) -> ExitReport | None:
        """Report the transport in the log and as an event, unless the same was reported before.

        Returns why the run has to end, or None.
        """
        text, answer = question.line(found, self._asked), question.of_node(found, self._asked)
        self._found = dict(sorted(found.items()))
        if text == self._said:
            return None
        self._said = text
        ends_run = is_bad and self._config.train.transport_policy == "stop"
        self._repeat_at = self._clock() + REPEAT_SECONDS if is_bad and not ends_run else math.inf
        is_trivial = all(t.library == "gloo" and t.machines == 1 for t in found.values())
        if not is_trivial and not ends_run:  # the run's end gives it as its reason
            self._say(text)
        each = [labels_of(rank, transport) for rank, transport in self._found.items()]
        values = {
            key: ",".join(dict.fromkeys(labels[key] for labels in each))
            for key in ("rank", "transport", "device", "gpu_direct")
        }
        self._events.write(Name.TRANSPORT, **values, asked=",".join(self._asked), as_asked=answer)
        return ExitReport(ExitCode.FATAL, question.reason_to_stop(text)) if ends_run else None


def labels_of(rank: int, found: Transport) -> dict[str, str]:
    """Return the labels of a rank's transport for Prometheus."""
    network = "none" if question.stays_inside(found) else "+".join(found.networks) or "unknown"
    direct = {True: "yes", False: "no", None: "unknown"}[found.has_gpu_direct]
    return {
        "rank": str(rank),
        "library": found.library,
        "transport": network,
        "device": ",".join(found.devices),
        "gpu_direct": direct,
        "inside": ",".join(found.inside),
    }


def lines_of(path: Path) -> list[str]:
    """Return the lines in the first MOST_BYTES bytes of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES).decode(errors="replace").splitlines()
