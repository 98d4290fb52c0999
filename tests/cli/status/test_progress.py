"""`status` reads what the trainer writes to its log, with the times that Kubernetes puts
before it.
"""

from datetime import UTC, datetime

import pytest

from cli.status.progress import Progress, last_words, read_progress
from tests.cli.status.trainer_lines import START, STEPS
from trainer.checkpoint import verified_words
from trainer.launch.goodput_line import goodput_line
from trainer.launch.said_again import said_again
from trainer.program.own_ranks import NOT_OF_THE_RUN
from trainer.program.progress import Point
from trainer.program.work import UNSEEN
from trainer.transport.asked import asked_of, line
from trainer.transport.lines import Transport
from trainer.watch.beat import Phase
from trainer.watch.hang import Hang, RankState
from trainer.watch.slow import Cause, Finding

LOST = """\
2026-11-22T06:41:00Z [node 0] round 1 is lost: node 1 lost the connection; stopping the other nodes
2026-11-22T06:41:01Z [node 0] training stopped: node 1 lost the connection; starting again at once
"""


def test_nothing_is_known_before_the_first_line() -> None:
    assert read_progress("") == Progress()


def test_what_the_pods_wait_for_is_known_until_their_round() -> None:
    """What the pods wait for is shown until their round begins."""
    assert read_progress(START.splitlines()[0]).waits_for == "waiting for node(s) 2 to join"
    assert read_progress(START).waits_for == ""
    assert read_progress(START).step is None


def test_newest_step_and_newest_checkpoint_count() -> None:
    found = read_progress(START + STEPS)
    assert (found.step, found.of, found.loss) == (20, 4000, "4.0912")
    assert (found.tokens_per_second, found.mfu, found.eta) == ("8740", "41.2%", "5m28s")
    assert found.stepped_at == datetime(2026, 11, 22, 6, 40, 13, tzinfo=UTC)
    assert found.saved_step == 20
    assert found.saved_at == datetime(2026, 11, 22, 6, 40, 12, tzinfo=UTC)


def test_verified_is_what_was_read_and_not_what_was_saved() -> None:
    """A checkpoint is shown as verified when its files were read, by a start or by the copy to the
    mirror. A save alone verifies nothing: it computes the sha256 of what it writes.
    """
    assert read_progress(START + STEPS).verified_step is None
    begun = f"2026-11-22T06:40:09Z {verified_words.continued(10, 'step-00000010')}\n"
    found = read_progress(START + begun + STEPS)
    assert (found.saved_step, found.verified_step) == (20, 10)
    assert found.verified_at == datetime(2026, 11, 22, 6, 40, 9, tzinfo=UTC)
    assert found.verified_by == verified_words.BY_START
    copied = f"2026-11-22T06:40:20Z [mirror] {verified_words.copied(20, 1234567, 0.5)}\n"
    later = read_progress(START + begun + STEPS + copied)
    assert (later.verified_step, later.verified_by) == (20, verified_words.BY_MIRROR)
    older = copied.replace("step 20", "step 5").replace("40:20", "40:30")
    assert read_progress(START + begun + STEPS + copied + older) == later
    again = read_progress(START + begun + STEPS + copied + begun)
    assert again.verified_step == 10  # a start from step 10 means that step 20 is damaged by now


def test_words_of_a_program_of_the_user_verify_nothing() -> None:
    """Similar words of a user's own program do not count as a verified checkpoint. Programs such as
    those of examples/ cannot say that every byte was compared.
    """
    for words in ("rank 0: continuing after step 5", "continuing after step 5 from step-00000006"):
        assert read_progress(f"2026-11-22T06:40:09Z {words}\n").verified_step is None


SAVES = """\
2026-11-22T06:40:14Z checkpoint step-00000020 is being written
2026-11-22T06:40:16Z training waits for checkpoint step-00000020
"""


def test_save_lasts_until_its_end_and_waiting_until_the_next_step() -> None:
    """A save is under way until it ends, or the run is lost or starts again. Training waits for it
    until the next step.
    """
    begin = datetime(2026, 11, 22, 6, 40, 14, tzinfo=UTC)
    held = read_progress(START + STEPS + SAVES)
    assert (held.saving_step, held.saving_at, held.saving_holds) == (20, begin, True)
    step = STEPS.splitlines()[-1]
    on = read_progress(f"{START}{STEPS}{SAVES}{step}\n")
    assert (on.saving_step, on.saving_at, on.saving_holds) == (20, begin, False)
    for end in (STEPS, LOST, START, "2026-11-22T06:40:20Z [node 0] fatal: no room to write"):
        over = read_progress(START + STEPS + SAVES + end)
        assert (over.saving_step, over.saving_at, over.saving_holds) == (None, None, False)
    # The line about the beginning of the save is too far back to be read.
    cut = read_progress(SAVES.splitlines()[-1])
    assert (cut.saving_step, cut.saving_at) == (20, begin.replace(second=16))


def test_trouble_lasts_until_the_next_step() -> None:
    """The reason for a restart is shown until the next step."""
    lost = read_progress(START + STEPS + LOST)
    assert lost.trouble == "node 1 lost the connection; starting again at once"
    assert lost.step == 20
    assert read_progress(START + STEPS + LOST + START).trouble == lost.trouble
    assert read_progress(START + STEPS + LOST + START + STEPS).trouble == ""


def test_step_of_a_lost_round_ends_no_trouble() -> None:
    """A step that is printed after the loss of its round does not end the trouble. A rank may have
    written it before its end, and where pods end in order no other line tells of the loss.
    """
    told = LOST.splitlines(keepends=True)[0]
    for lines in (told, told + STEPS):
        found = read_progress(START + STEPS + lines)
        assert (found.trouble, found.round_is_lost) == ("node 1 lost the connection", True)
    assert read_progress(START + told + START + STEPS).trouble == ""


def test_the_slow_rank_is_the_one_of_the_newest_step() -> None:
    """The slow rank that is shown is the one that the newest step names."""
    finding = Finding(Cause.DATA, 2, 1, 1.8, 0.21, 0.002)
    slow = STEPS.rstrip("\n") + f" slow rank: {finding}\n"
    assert read_progress(slow).slow_rank == (
        "rank 2 on node 1 takes 1.8x as long as the others: data loading (0.210 s against 0.002 s)"
    )
    assert read_progress(slow).eta == "5m28s"
    assert read_progress(slow + STEPS).slow_rank == ""


def test_a_hang_lasts_until_the_next_step() -> None:
    """A rank that holds up the others is shown until the next step or the loss of the round."""
    states = [
        RankState(0, 0, 21, Phase.PASSES, True, "S", "a.py:1 (b)"),
        RankState(1, 1, 21, Phase.PASSES, True, "T", ""),
    ]
    hang = f"2026-11-22T06:41:00Z [node 0] {Hang(states).describe(17)}\n"
    assert read_progress(STEPS + hang).hang.startswith("rank 1 on node 1 does not answer, state T")
    assert read_progress(STEPS + hang + STEPS).hang == ""
    assert read_progress(STEPS + hang + LOST).hang == ""


def test_ranks_not_of_the_run_are_read_until_the_next_start() -> None:
    """A warning about ranks that a program has started itself is read until the next start."""
    said = f"2026-11-22T07:00:00Z [node 1] {NOT_OF_THE_RUN}a rank 0 of 8 runs in this pod too\n"
    assert read_progress(said).own_ranks == "a rank 0 of 8 runs in this pod too"
    assert read_progress(said + START).own_ranks == ""


def test_a_transport_that_was_not_asked_for_is_read_until_it_is_another() -> None:
    """A warning about the transport is shown until the ranks tell of another transport or begin
    another round.
    """
    sockets = Transport(("socket",), ("eth0",), False, is_used=True)
    said = f"2026-11-22T06:41:00Z [node 1] {line({1: sockets}, ('ib',))}\n"
    found = read_progress(START + said + STEPS)
    assert found.transport.startswith("rank 1 by NCCL over TCP sockets (eth0), and the network")
    assert "Likely causes: (1) " in found.transport
    for asked in ("socket", ""):
        good = f"2026-11-22T06:42:00Z [node 1] {line({1: sockets}, asked_of(asked))}\n"
        assert read_progress(said + good).transport == ""
    unknown = f"2026-11-22T06:42:00Z [node 1] {line({1: Transport()}, ('ib',))}\n"
    assert read_progress(said + unknown).transport == ""
    assert read_progress(said + START).transport == "", "another round may have another one"


def test_the_end_and_its_reason_are_read() -> None:
    """The end of a run is read with its reason. A later start, for example with more steps, takes
    it back.
    """
    finished = "2026-11-22T06:50:00Z [node 0] run dev is finished: step 4000, loss 1.8307\n"
    assert read_progress(STEPS + finished).finished == "step 4000, loss 1.8307"
    fatal = "2026-11-22T06:50:00Z [node 1] fatal: the loss is no number at step 21\n"
    assert read_progress(STEPS + fatal).failed == "the loss is no number at step 21"
    again = read_progress(STEPS + finished + START)  # train.max_steps was raised
    assert again.finished == ""


def test_a_time_that_cannot_be_read_is_unknown() -> None:
    """A line whose time cannot be read still counts, without a time."""
    line = STEPS.splitlines()[0].partition(" ")[2]
    found = read_progress(f"yesterday {line}")
    assert (found.step, found.stepped_at) == (19, None)


def test_last_words_are_of_the_pod_that_has_some() -> None:
    """The reason for a failure is that of the pod that gives one."""
    assert last_words([Progress(), Progress(failed="no room")]) == "no room"
    assert last_words([Progress()]) == ""


def test_time_between_reports_is_that_of_most_of_them() -> None:
    """The time between two reports of steps is the usual one. A restart in between, which takes
    much longer, does not count.
    """
    line = STEPS.splitlines()[2]
    seconds = (10, 12, 14, 50, 52, 54)
    log = "\n".join(line.replace(":13Z", f":{second}Z") for second in seconds)
    assert read_progress(log).seconds_between_reports == 2.0
    assert read_progress(line).seconds_between_reports is None


def test_line_that_is_said_again_is_as_old_as_at_first() -> None:
    """A line that the node repeats keeps the time at which it was first written. A node repeats
    what would otherwise not be among its last lines (trainer/launch/said_again.py).
    """
    at = datetime(2026, 11, 22, 6, 40, 9, tzinfo=UTC)
    verified = said_again(at, verified_words.continued(10, "step-00000010"))
    account = said_again(at, "[node 0] goodput 92.3% of 3.1 h: 0 restarts, 0 steps made again")
    lines = [f"2026-11-22T09:00:00Z [node 0] {text}\n" for text in (verified, account)]
    found = read_progress("".join(lines) + STEPS)
    assert (found.verified_step, found.verified_at) == (10, at)
    assert found.goodput == "92.3% of 3.1 h: 0 restarts, 0 steps made again"
    assert found.goodput_at == at
    wrong = verified.replace("-22T", "-99T")
    assert read_progress(f"2026-11-22T09:00:00Z [node 0] {wrong}\n").verified_step is None


def test_step_that_is_said_again_is_no_further_step() -> None:
    """A repeated step changes neither the time between two steps nor the reason for a restart after
    it.
    """
    step = "[node 0] program: step 20/300 loss 4.2500"
    first = f"2026-11-22T06:40:09.500Z {step}\n"
    at = datetime(2026, 11, 22, 6, 40, 9, tzinfo=UTC)
    again = f"2026-11-22T09:00:00Z [node 0] {said_again(at, step)}\n"
    assert read_progress(first + again) == read_progress(first)
    assert read_progress(first + LOST + again) == read_progress(first + LOST)
    found = read_progress(again)
    assert (found.step, found.stepped_at) == (20, at)


def test_newest_account_of_the_time_counts() -> None:
    """The newest account of the run's time is shown. It outlasts steps and restarts, because it is
    about the whole run.
    """
    account = {"wall_seconds": 11160.0, "restarts": 2, "lost_steps": 14, "goodput": 0.92345}
    account["gpu_hours"] = 9.3
    first = goodput_line({**account, "wall_seconds": 90.0, "restarts": 1, "lost_steps": 1})
    early = f"2026-11-22T06:41:00Z [node 0] {first}\n"
    assert read_progress(STEPS + early).goodput == (
        "92.3% of 1.5 min: 1 restart, 1 step made again"
    )
    late = f"2026-11-22T06:45:00Z [node 0] {goodput_line(account)}\n"
    assert read_progress(early + late + LOST + START + STEPS).goodput == (
        "92.3% of 3.1 h: 2 restarts, 14 steps made again"
    )
    found = read_progress(early + late + STEPS)
    assert found.rank_hours == 9.3
    assert found.goodput_at == datetime(2026, 11, 22, 6, 45, tzinfo=UTC)


def test_account_of_an_older_trainer_has_no_rank_hours() -> None:
    """The account of an older trainer, which does not tell the hours of all ranks, is read too."""
    old = "2026-11-22T06:41:00Z [node 0] goodput 92.3% of 3.1 h: 0 restarts, 0 steps made again\n"
    found = read_progress(old)
    assert found.goodput == "92.3% of 3.1 h: 0 restarts, 0 steps made again"
    assert found.rank_hours is None


def test_steps_of_a_program_are_those_that_the_launcher_repeats() -> None:
    """The steps of a user's own program are read from the lines in which the launcher
    repeats them.
    """

    def line(point: Point) -> str:
        return f"2026-11-22T06:40:13Z [node 0] program: {point.words()}\n"

    found = read_progress(START + LOST + START + line(Point(20, 4.25, 300, 0.0)))
    assert (found.step, found.of, found.loss) == (20, 300, "4.2500")
    assert found.trouble == ""
    bare = read_progress(START + line(Point(20, None, None, 0.0)))
    assert (bare.step, bare.of, bare.loss) == (20, None, "")


def test_program_whose_steps_nobody_sees_says_so_until_its_next_round() -> None:
    """A user's own program whose steps cannot be seen is shown as such until its next round."""
    line = f"2026-11-22T06:40:13Z [node 0] program: {UNSEEN}\n"
    assert "neither program.progress nor" in read_progress(START + line).unseen
    assert read_progress(line + START).unseen == ""


def test_what_a_log_holds_does_not_steer_the_terminal() -> None:
    """Control sequences in a log, such as colours, are shown as escapes. Letters of any language
    stay as they are.
    """
    why = "\x1b[31mRuntimeError: Gr\u00f6\u00dfe\x1b[2J"
    found = read_progress(f"2026-11-22T07:00:00Z [node 0] fatal: rank 1: {why}")
    assert found.failed == "rank 1: \\x1b[31mRuntimeError: Gr\u00f6\u00dfe\\x1b[2J"


@pytest.mark.parametrize("sign", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_line_of_a_log_ends_at_a_line_feed_alone(sign: str) -> None:
    """Only a line feed ends a line of a log. Otherwise a program could print text that is taken for
    a line of the trainer.
    """
    odd = f"2026-11-22T07:00:00Z my text{sign}t [node 0] fatal: it was made up"
    assert read_progress(f"{odd}\n").failed == ""
