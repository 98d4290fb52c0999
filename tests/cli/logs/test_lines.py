"""The parts of `disttrain logs` that need no cluster: options, lines, labels, explanations, and the
position in a pod's log.
"""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cli.logs.explain import explain
from cli.logs.labels import shown
from cli.logs.line import Line, api_time, parse_api_line, parse_record
from cli.logs.position import Position, order_of
from cli.logs.selection import Selection, parse_pattern, parse_ranks
from cli.logs.since import parse_since
from cli.pod_facts import node_of, started_at
from infra.in_cluster.xids import XIDS
from trainer.launch.run_log import record_of

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", NOW - timedelta(minutes=10)),
        ("1.5h", NOW - timedelta(minutes=90)),
        ("90s", NOW - timedelta(seconds=90)),
        ("2d", NOW - timedelta(days=2)),
        ("2026-11-22 09:00:00Z", NOW + timedelta(minutes=30)),
        ("2026-11-22T09:00+01:00", NOW - timedelta(minutes=30)),
    ],
)
def test_since_is_an_age_or_a_time(text: str, expected: datetime) -> None:
    """`--since` takes an age or a time with its zone."""
    assert parse_since(text, NOW) == expected


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the zone of central Europe, whose clocks go back an hour on the last Sunday of
    October.
    """
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("central_europe")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22T09:00", datetime(2026, 11, 22, 8, tzinfo=UTC)),
        ("2026-11-22", datetime(2026, 11, 21, 23, tzinfo=UTC)),
        ("2026-10-24 09:00", datetime(2026, 10, 24, 7, tzinfo=UTC)),
    ],
)
def test_since_is_by_the_clock_of_its_day(text: str, expected: datetime) -> None:
    """A time without a zone is by the local clock of its own day, as `--timestamps` shows it.
    Otherwise a time that was shown would mean another line once summer time is over.
    """
    assert parse_since(text, NOW) == expected
    written = shown(Line(expected.timestamp(), 0, 0, ""), has_colour=False, has_time=True)
    assert written.startswith(text.replace("T", " "))


@pytest.mark.parametrize(
    "text", ["10", "m", "yesterday", "-5m", "99999999999d", "2026-13-01", "0001-01-01"]
)
def test_a_wrong_since_is_named_with_its_value(text: str) -> None:
    with pytest.raises(ValueError, match=f"--since: '{text}' cannot be used"):
        parse_since(text, NOW)


def test_ranks_are_a_list_of_numbers_and_ranges() -> None:
    assert parse_ranks("") == frozenset()
    assert parse_ranks("0, 2,4-6") == {0, 2, 4, 5, 6}
    for text in ("a", "1-", "3-1", "-1", "0,,2", "0-99999999"):
        with pytest.raises(ValueError, match="--rank: "):
            parse_ranks(text)


def test_a_wrong_pattern_is_refused_with_its_reason() -> None:
    assert parse_pattern("") is None
    with pytest.raises(ValueError, match=r"--grep: '\(' cannot be used: it is no regular"):
        parse_pattern("(")


def test_a_selection_takes_rank_time_and_words_together() -> None:
    """A line is shown only if its rank, its time and its words are all asked for. Lines of a node
    itself have no rank, and are left out when ranks are asked for.
    """
    line = Line(100.0, 1, 4, "loss 2.5")
    assert Selection().has(line)
    assert Selection(frozenset({4}), 100.0, re.compile("loss")).has(line)
    assert not Selection(frozenset({3})).has(line)
    assert not Selection(since=100.1).has(line)
    assert not Selection(grep=re.compile("step")).has(line)
    assert not Selection(frozenset({4})).has(Line(100.0, 1, None, "[node 1] round 1: ..."))


def test_a_record_is_read_as_it_was_written() -> None:
    """A line that the trainer has written to its log is read with its time, node, rank and text. A
    line that is torn is no record.
    """
    at = datetime(2026, 11, 22, 9, 0, 0, 123456, UTC)
    assert parse_record(record_of(at, 1, 4, b"a b\xff")[:-1]) == Line(
        at.timestamp(), 1, 4, "a b\N{REPLACEMENT CHARACTER}"
    )
    assert parse_record(record_of(at, 0, None, b"")[:-1]) == Line(at.timestamp(), 0, None, "")
    assert parse_record(b"2026-11-2") is None
    assert parse_record(b"2026-99-22T09:00:00.000000Z 0 0 x") is None


def test_a_line_of_the_api_has_nanoseconds_and_a_zone() -> None:
    """A line of the API server is read with its time, whose nanoseconds are cut to microseconds. A
    line without a time is none.
    """
    at = datetime(2026, 11, 22, 9, 0, 0, 123456, UTC).timestamp()
    assert parse_api_line(b"2026-11-22T10:00:00.123456789+01:00 a  b", 2) == Line(
        at, 2, None, "a  b"
    )
    assert parse_api_line(b'{"kind":"Status"}', 0) is None
    assert parse_api_line(b"", 0) is None
    assert api_time(at) == "2026-11-22T09:00:00Z"


def test_labels_are_always_there_and_colours_only_if_wanted() -> None:
    """Each line is shown with its node and rank, and with colours only if they are wanted."""
    line, own = Line(1.0, 1, 4, "loss"), Line(1.0, 1, None, "[node 1] round 1")
    assert shown(line, has_colour=False) == "[node 1 rank 4] loss"
    assert shown(own, has_colour=False) == "[node 1] round 1"
    assert shown(Line(1.0, 1, None, "x"), has_colour=False) == "[node 1] x"
    assert re.fullmatch(r"\x1b\[\d+m\[node 1 rank 4\]\x1b\[0m loss", shown(line, has_colour=True))
    assert shown(line, True) != shown(Line(1.0, 1, 5, "loss"), True)


def test_a_log_goes_on_where_it_was_left_within_a_second() -> None:
    """A pod's log that is asked for again is shown without lines twice and without gaps. A request
    can only name a whole second, so the lines of that second come again.
    """
    stamps = ["00.1Z", "00.12Z", "00.12Z", "00.5Z", "01Z", "01.000000001Z"]
    position, passed = Position(), list[str]()
    for end in (3, 4, len(stamps)):
        position.begin()
        passed += [
            stamp
            for stamp in stamps[:end]
            if position.passes(f"2026-11-22T09:00:{stamp}".encode(), 1.0)
        ]
    assert passed == stamps
    position.begin()
    assert not any(position.passes(f"2026-11-22T09:00:{s}".encode(), 1.0) for s in stamps[4:])
    assert order_of("2026-11-22T09:00:00-05:00") < order_of("2026-11-22T09:00:00.01-05:00")


def test_the_rank_of_a_node_is_that_of_its_pod() -> None:
    """The number of a node is found in its pod's labels or name, for each kind of workload."""

    def pod(name: str, kind: str = "Job", **labels: str) -> dict[str, object]:
        owners = [{"kind": kind}]
        return {"metadata": {"name": name, "labels": labels, "ownerReferences": owners}}

    index = "batch.kubernetes.io/job-completion-index"
    assert node_of(pod("train-singlepod-2")) == 0
    assert node_of(pod("train-multipod-2", "StatefulSet")) == 2
    assert node_of(pod("x", "StatefulSet", **{"apps.kubernetes.io/pod-index": "5"})) == 5
    assert node_of(pod("train-1-abcde", **{index: "3"})) == 3
    replica = {"training.kubeflow.org/replica-index": "2"}
    assert node_of(pod("train-pytorchjob-worker-2", "PyTorchJob", **replica)) == 2
    assert node_of(pod("train-mpijob-worker-1", "MPIJob", **replica)) == 2
    assert node_of(pod("train-mpijob-launcher-abcde", **{**replica, next(iter(replica)): "0"})) == 0
    assert node_of(pod("train-volcano-node-2", **{"volcano.sh/task-index": "2"})) == 2
    assert started_at({"status": {}}) == 0.0


def test_every_well_known_xid_has_a_sentence() -> None:
    """Well-known Xid errors of the NVIDIA driver are explained. An unknown one leads to NVIDIA's
    catalog.
    """
    assert set(XIDS) >= {13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119}
    line = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', GPU has fallen off the bus."
    assert explain(line).startswith("Xid 79 of GPU PCI:0000:9b:00: the GPU does not answer on the")
    assert "catalog" in explain("NVRM: Xid (PCI:0000:9b:00): 31999, pid=1")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x [1] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1", "a GPU of its own"),
        ("x [1] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm"
         "/n (size 33030528), error: No space left on device (28)", "raise the setting shmSize"),
        ("x [1] bootstrap.cc:41 NCCL WARN Bootstrap : no socket interface found", "NCCL_SOCKET_IF"),
        ("ncclRemoteError: A call failed possibly due to a network error", "another rank has end"),
        ("socketProgressOpt: Call to recv from 10.0.0.1<1> failed : Connection reset by peer",
         "the connection to another rank broke"),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(", "waited in vain"),
        ("NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=0", "InfiniBand"),
        ("NET/IB : Got completion from peer 10.0.0.1<1> with error 12, opcode 0", "InfiniBand"),
        ("NCCLUtils.hpp:77, unhandled system error (run with NCCL_DEBUG=INFO", "operating system"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "reset the GPU"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "LimitMEMLOCK"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory errno 12", "LimitMEMLOCK"),
        ("x NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -12, Error: "
         "Cannot allocate memory", "LimitMEMLOCK"),
        ("misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed", "was not given"),
        ("x NCCL WARN NET/IB : Unable to open device mlx5_bond_0", "was not given"),
        ("Call to ibv_modify_qp failed with error No such device", "network card of the device"),
    ],
)  # fmt: skip
def test_a_line_of_nccl_or_cuda_gets_a_sentence(line: str, words: str) -> None:
    assert words in explain(line)


def test_an_ordinary_line_gets_no_sentence() -> None:
    assert explain("step 1/20 loss 2.9476 val - lr 1.7e+29 tokens/s 4558 mfu n/a") == ""
    assert explain("x [0] NCCL INFO NET/Socket : Using [0]eth0:10.42.0.7<0>") == ""


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\r 10%|#  |\r 20%|## |", " 20%|## |"),
        ("a line of Windows\r", "a line of Windows"),
        ("\r\r", ""),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("plain", "plain"),
    ],
)
def test_line_on_a_terminal_leaves_its_label_and_the_next_line(text: str, seen: str) -> None:
    """On a terminal, a line with carriage returns keeps its label, and a colour ends with its line.
    Of a progress bar the last state is shown. A file gets every byte.
    """
    line = Line(100.0, 0, 1, text)
    assert shown(line, has_colour=False, on_terminal=True) == f"[node 0 rank 1] {seen}"
    assert shown(line, has_colour=False) == f"[node 0 rank 1] {text}"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\033[A\033[A 20%|##        | 2/10", " 20%|##        | 2/10"),
        ("\033[2K\033[1G\033[?25lepoch 3", "epoch 3"),
        ("\033]0;my training\007step 7", "step 7"),
        ("\033[2J\033[H\033[1;32mdone\033[0m", "\033[1;32mdone\033[0m\033[0m"),
        ("a\tb\b\x0e\x9bAc", "a\tbAc"),
        ("cut in an escape \033[3", "cut in an escape [3"),
    ],
    ids=["bars below each other", "bar of node", "title", "screen", "single signs", "cut"],
)
def test_line_on_a_terminal_moves_nothing(text: str, seen: str) -> None:
    """On a terminal, sequences that move the cursor, clear the screen or set the title are left
    out, and colours are kept. Otherwise progress bars would overwrite the lines of other ranks.
    """
    line = Line(100.0, 0, 1, text)
    assert shown(line, has_colour=False, on_terminal=True) == f"[node 0 rank 1] {seen}"
    assert shown(line, has_colour=False) == f"[node 0 rank 1] {text}"
