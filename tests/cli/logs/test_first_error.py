"""`logs --first-error` finds the cause of a crash among the lines of its victims.

Each file in crashes/ is the log of a crash of several ranks. Its first line says what is to be
found: how sure it is, and on which node and rank (`-` where the log cannot tell). The second line
has a piece of the line that is the cause. The third line says where the text is from: recorded from
an accident of the real trainer, or, where it takes GPUs, composed of texts of PyTorch, NCCL and the
driver.
"""

import re
from pathlib import Path

import pytest

from cli.logs.causes import Weight, weigh
from cli.logs.explain import explain
from cli.logs.first_error import as_text, first_error, starts
from cli.logs.line import SEARCHED_CHARACTERS, Line, parse_record

CRASHES = sorted((Path(__file__).parent / "crashes").glob("*.txt"))


def read(path: Path) -> tuple[list[str], list[Line]]:
    """Return the three lines of the head, and the log's lines in the order of time."""
    rows = path.read_text().splitlines()
    lines = [parse_record(row.encode()) for row in rows[3:]]
    assert None not in lines
    return rows[:3], sorted((line for line in lines if line), key=lambda line: line.at)


def test_there_are_at_least_twenty_crashes() -> None:
    assert len(CRASHES) >= 20
    recorded = [path for path in CRASHES if "# recorded: " in path.read_text()]
    assert len(recorded) >= 20


@pytest.mark.parametrize("path", CRASHES, ids=lambda path: path.stem)
def test_cause_of_a_recorded_crash_is_found(path: Path) -> None:
    """The cause of each crash is found on its node and rank, and is as sure as the recording
    says.
    """
    head, lines = read(path)
    found = first_error(lines)
    assert found is not None
    rank = "-" if found.line.rank is None else str(found.line.rank)
    where = f"# {found.weight.name.lower()}; node {found.line.node} rank {rank}"
    assert (where, head[1][2:] in found.line.text) == (head[0], True), found.line


@pytest.mark.parametrize("path", CRASHES, ids=lambda path: path.stem)
def test_a_victim_is_named_only_where_nothing_else_is(path: Path) -> None:
    """A line that is only a consequence is named only if no line of the log is more than that."""
    found = first_error(read(path)[1])
    assert found is not None
    if weigh(found.line.text) == Weight.VICTIM:
        assert min(weigh(line.text) for line in read(path)[1]) == Weight.VICTIM


def test_a_run_that_goes_well_has_no_error() -> None:
    """A run that goes well, or is stopped by a signal, has no first error."""
    lines = [
        Line(1, 0, None, "[node 0] round 1: 1 node(s) x 2 rank(s), store at 127.0.0.1:1"),
        Line(2, 0, 0, "step 1/20 loss 2.9 val - lr 1e-3 tokens/s 4558"),
        Line(3, 0, 0, "[mirror] warning: the store does not answer"),
        Line(4, 0, None, "[node 0] stopped by a signal; the next start continues from"),
    ]
    assert first_error(lines) is None
    assert first_error([]) is None


def test_device_without_which_nccl_goes_on_is_no_cause() -> None:
    """NCCL goes on by TCP if it cannot open an RDMA device, so that is not why a rank ended later.
    If it cannot pin memory on a device that it has opened, it ends.
    """
    warn = "train-0:12:12 [0] misc/ibvwrap.cc:212 NCCL WARN Call to"
    assert weigh(f"{warn} ibv_open_device failed") == Weight.NOTHING
    assert weigh(f"{warn} ibv_create_qp failed with error Cannot allocate memory") == Weight.CAUSE


# Warnings of the trainer about trouble with which training goes on, from events/log.py,
# checkpoint/save.py, mirror/process.py and transport/asked.py.
GONE_ON = [
    "[node 0] warning: /data/runs/a/events/node-00000.jsonl: events cannot be written ([Errno 28] "
    "No space left on device); training goes on, and `goodput` will know less of this time",
    "warning: the checkpoint of step 50 could not be written: OSError: [Errno 5] Input/output "
    "error; the earlier ones are untouched (none) (failure 1 in a row, 3 end the run); the next",
    "[mirror] warning: Connection reset by peer; training goes on, and the copy is tried again",
    "[node 0] warning: transport not as asked: rank 0 by NCCL over TCP sockets (NCCL says: NET/IB "
    ": no socket interface found)",
]


@pytest.mark.parametrize("warning", GONE_ON)
def test_trouble_that_training_survived_is_no_cause(warning: str) -> None:
    """A warning about trouble with which training went on is no error. Otherwise a warning hours
    before a crash would be named as its cause.
    """
    begun = Line(1, 0, None, "[node 0] round 1: 1 node(s) x 2 rank(s), store at 127.0.0.1:1")
    warned = Line(2, 0, 0, warning)
    assert first_error([begun, warned]) is None
    killed = Line(9000, 0, None, "[node 0] rank 1 was killed by SIGKILL: by the kernel for lack of")
    found = first_error([begun, warned, killed])
    assert found is not None
    assert found.written == killed


def test_middle_of_a_long_line_is_not_searched() -> None:
    """Only the beginning and the end of a long line are searched, and a line may have 1 MiB. The
    time of some patterns grows with the square of what they search, so that one such line would
    hold up `logs` for minutes.
    """
    error = "CUDA error: device-side assert triggered"
    half = "x " * (SEARCHED_CHARACTERS // 4)
    for line in (error + half + half, half + half + error):
        assert (weigh(line), explain(line) != "") == (Weight.CAUSE, True)
    hidden = f"{half}{error}{half}"
    assert (weigh(hidden), explain(hidden)) == (Weight.NOTHING, "")


MISSING = "No module named 'xformers'"


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        (f"UserWarning: xFormers is not available: {MISSING}", Weight.NOTHING),
        (f"INFO:root:no fast attention ({MISSING}); PyTorch's own is used", Weight.NOTHING),
        (f"ModuleNotFoundError: {MISSING}", Weight.CAUSE),
        ("/usr/local/bin/python: No module named my_trainer", Weight.CAUSE),
        (
            "/opt/venv/bin/python3.12: Error while finding module specification for 'a.b' "
            "(ModuleNotFoundError: No module named 'a')",
            Weight.CAUSE,
        ),
    ],
)
def test_module_that_a_program_does_without(text: str, weight: Weight) -> None:
    """A missing module is a cause only if Python ends because of it. Many programs say at their
    start which optional module is missing, and go on.
    """
    assert weigh(text) == weight


def test_line_of_a_killed_rank_comes_before_the_summary_of_its_node() -> None:
    """Both name the rank, and the summary only by its number on its node. It may come first if the
    clock of another node is behind.
    """
    how = "was killed by SIGKILL: by the kernel for lack of memory, or by somebody"
    lines = [
        Line(1, 0, None, "[node 0] round 1: 2 node(s) x 2 rank(s), store at 127.0.0.1:1"),
        Line(2, 0, None, f"[node 0] training stopped: local rank 1 {how}; starting again at once"),
        Line(3, 1, None, f"[node 1] rank 3 {how}"),
    ]
    found = first_error(lines)
    assert found is not None
    assert (found.line.node, found.line.rank, found.weight) == (1, 3, Weight.CAUSE)


def test_a_rank_that_the_others_waited_for_is_the_first_sign() -> None:
    """A rank that does not answer is suspected, and not the ranks that timed out while they waited
    for it. A cause that is sure, such as a killed rank, still comes first.
    """
    hang = "[node 0] no step for 17 s: rank 2 on node 1 does not answer, state T (stopped); it was"
    timed_out = "RuntimeError: [pair.cc:1] Timed out waiting 60000ms for recv operation to complete"
    lines = [
        Line(1, 0, None, "[node 0] round 1: 2 node(s) x 2 rank(s), store at 127.0.0.1:1"),
        Line(20, 0, None, hang),
        Line(60, 0, 0, timed_out),
        Line(61, 0, 0, f"rank 0: {timed_out}"),
        Line(62, 0, None, f"[node 0] training stopped: {timed_out}; starting again at once"),
    ]
    found = first_error(lines)
    assert found is not None
    assert (found.line.node, found.line.rank, found.weight) == (1, 2, Weight.SUSPECT)
    assert found.written.text == hang
    killed = Line(59, 1, None, "[node 1] rank 3 was killed by SIGKILL: by the kernel")
    found = first_error([*lines[:2], killed, *lines[2:]])
    assert found is not None
    assert found.line.rank == 3


@pytest.mark.parametrize("begin", ["training stopped: ", "round 1 is lost: node 0: "])
def test_rank_that_waited_too_long_is_a_victim(begin: str) -> None:
    """A rank that waited too long for another one is a victim, although its own node ended the
    round (trainer/launch/hang_watch.py).
    """
    why = "rank 0 has waited for 65 s in the sum of the gradients of step 7, longer than"
    text = f"[node 0] {begin}{why} train.timeout_seconds (60); starting again at once"
    assert weigh(text) == Weight.VICTIM


def test_a_node_in_another_round_begins_the_next_start() -> None:
    """The next start of a run begins when a node begins another round. Later lines of the other
    nodes belong to that start too, though one of them had given up before.
    """
    texts = [
        (0, "[node 0] round 1: x"),
        (1, "[node 1] round 1: x"),
        (0, "[node 0] training stopped: y; starting again at once"),
        (1, "[node 1] giving up for now: y"),
        (0, "[node 0] round 2: x"),
        (1, "[node 1] waiting for node 0 at a:1 (refused)"),
        (1, "[node 1] round 2: x"),
    ]
    lines = [Line(at, node, None, text) for at, (node, text) in enumerate(texts)]
    assert [len(part) for part in starts(lines)] == [4, 3]


@pytest.mark.parametrize("end", ["fatal: y", "giving up for now: y", "stopped by a signal; y"])
def test_a_node_that_had_ended_begins_the_next_start(end: str) -> None:
    """A line of a node after its end belongs to the next start, though no round has begun yet. The
    lines of other nodes before it belong to the start that has ended.
    """
    texts = [
        (0, "[node 0] round 1: x"),
        (1, "[node 1] round 1: x"),
        (0, f"[node 0] {end}"),
        (1, "Traceback (most recent call last):"),
        (0, "loading the data"),
        (1, "[node 1] round 1: x"),
    ]
    lines = [Line(at, node, None, text) for at, (node, text) in enumerate(texts)]
    assert [len(part) for part in starts(lines)] == [4, 2]


def test_the_answer_shows_rank_meaning_and_context() -> None:
    """The answer names the rank and the meaning of the error, marks its line among the lines of the
    same rank, and leaves out lines of victims.
    """
    path = next(path for path in CRASHES if path.stem == "nccl-ecc")
    found = first_error(read(path)[1])
    assert found is not None
    rows = as_text(found, has_colour=False).splitlines()
    assert rows[0] == "The cause is on rank 5 on node 1:"
    assert rows[1].endswith("CUDA error: uncorrectable ECC error encountered")
    assert "reset the GPU" in rows[2]
    assert "  [node 1 rank 5] Traceback (most recent call last):" in rows
    marked = [row for row in rows if row.startswith("> ")]
    assert len(marked) == 1
    assert "uncorrectable ECC" in marked[0]
    assert not any("remote process exited" in row for row in rows)


def test_a_killed_rank_is_shown_with_its_own_last_lines() -> None:
    """A killed rank, which the node reports, is shown with the rank's own last lines. Lines that
    are mere consequences are left out.
    """
    texts = [
        (None, "[node 0] round 1: 1 node(s) x 2 rank(s), store at 127.0.0.1:1"),
        (1, "loading the data of rank 1"),
        (0, "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:1"),
        (None, "[node 0] rank 1 was killed by SIGKILL: by the kernel for lack of memory, or ..."),
        (None, "[node 0] training stopped: RuntimeError: Connection closed by peer; starting"),
    ]
    found = first_error([Line(at, 0, rank, text) for at, (rank, text) in enumerate(texts)])
    assert found is not None
    assert as_text(found, has_colour=False).splitlines() == [
        "The cause is on rank 1 on node 0:",
        f"  {texts[3][1]}",
        "",
        f"  {texts[0][1]}",
        "  [node 0 rank 1] loading the data of rank 1",
        f"> {texts[3][1]}",
    ]


def test_lines_around_the_error_have_their_time_if_asked_for() -> None:
    """With `--timestamps` the lines around the error have their time. Of a progress bar the last
    state is shown, behind its label.
    """
    lines = [Line(0, 0, 1, "ValueError: no"), Line(60, 0, 1, "\r 10%\r 20%")]
    found = first_error(lines)
    assert found is not None
    rows = as_text(found, has_colour=False, has_time=True, on_terminal=True).splitlines()
    assert re.fullmatch(r"> \d{4}-\d\d-\d\d \d\d:\d\d:00 \[node 0 rank 1\] ValueError: no", rows[3])
    assert rows[4].endswith(":00 [node 0 rank 1]  20%")


def test_cause_does_not_steer_the_terminal() -> None:
    """Control sequences in the error cannot clear the terminal or change its colour for good. A
    file gets every byte.
    """
    found = first_error([Line(0, 0, 1, "ValueError: \033[31mno\033[2J")])
    assert found is not None
    rows = as_text(found, has_colour=False, on_terminal=True).splitlines()
    assert rows[1] == "  ValueError: \033[31mno\033[0m"
    rows = as_text(found, has_colour=False).splitlines()
    assert rows[1] == "  ValueError: \033[31mno\033[2J"
