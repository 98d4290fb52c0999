"""What the processes of a node print reaches the container's log and the run's log.

The processes are real, but a few lines of Python stand in for each rank.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from trainer.launch.local_ranks import killed_by

CHECKOUT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60.0  # the longest wait, on a busy machine too
# The part of an entrypoint that runs its ranks: argv has the run's directory, then a program each.
NODE = """
import os, sys, threading
from pathlib import Path
from trainer.launch.lifeline import LIFELINE_VARIABLE
from trainer.launch.local_ranks import LocalRanks, process_of
from trainer.launch.node_output import NodeOutput
from trainer.launch.status_files import StatusFiles

run_dir, *programs = sys.argv[1:]
output = NodeOutput.of(1, Path(run_dir))
environments = [
    {**os.environ, "RANK": str(4 + i), "PROGRAM": program, LIFELINE_VARIABLE: "stdin"}
    for i, program in enumerate(programs)
]
command = [sys.executable, "-c", "import os; exec(os.environ['PROGRAM'])"]
output.say("starts")
status = StatusFiles(Path(run_dir) / "status")
ranks = LocalRanks(process_of(command), environments, status, output)
while ranks.is_running():
    ranks.wait(0.05)
ranks.say_who_was_killed()
ranks.close()
reading = [thread for thread in threading.enumerate() if thread.name == "line-pipe"]
output.say(f"pipes that are still read: {len(reading)}")
output.settle()
output.say("the reason")
output.close()
"""
RECORD = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z 1 (-|\d+) (.*)")


def start(run_dir: Path, *programs: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", NODE, str(run_dir), *programs]
    return subprocess.Popen(command, cwd=CHECKOUT, stdout=stdout, start_new_session=True)


def run(run_dir: Path, *programs: str) -> list[bytes]:
    """Run the node with these programs as ranks, and return the lines that it prints."""
    with start(run_dir, *programs) as node:
        output = node.communicate(timeout=60)[0]
    assert node.returncode == 0
    assert output.endswith(b"\n")
    return output[:-1].split(b"\n")


def kept(run_dir: Path) -> list[tuple[bytes, bytes]]:
    """Return rank and text of each record of the run's log."""
    content = (run_dir / "logs" / "node-00001.log").read_bytes()
    found = [RECORD.fullmatch(line) for line in content[:-1].split(b"\n")]
    assert content.endswith(b"\n")
    assert None not in found, content[-2000:]
    return [(match[1], match[2]) for match in found if match]


def test_both_logs_have_the_same_lines_in_the_same_order(tmp_path: Path) -> None:
    speak = "for i in range(500): print('line', i, flush=i % 7 == 0)"
    complain = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    shown = run(tmp_path, speak, complain)
    records = kept(tmp_path)
    assert [text for _, text in records] == shown
    assert (records[0], records[-1]) == ((b"-", b"[node 1] starts"), (b"-", b"[node 1] the reason"))
    assert [text for rank, text in records if rank == b"4"] == [b"line %d" % i for i in range(500)]
    assert [text for rank, text in records if rank == b"5"] == [b"out", b"err"]


def test_a_later_start_adds_its_lines(tmp_path: Path) -> None:
    run(tmp_path, "print('first')")
    run(tmp_path, "print('second')")
    texts = [text for rank, text in kept(tmp_path) if rank == b"4"]
    assert texts == [b"first", b"second"]


def test_a_rank_killed_within_a_line_leaves_it_and_is_named(tmp_path: Path) -> None:
    """A rank that is killed in the middle of a line leaves this piece in the log, and is named with
    its signal.
    """
    kill = "import os; os.write(1, b'whole\\nhalf a li'); os.kill(os.getpid(), 9)"
    shown = run(tmp_path, kill, "print('the other')")
    by = b"was killed by SIGKILL: by the kernel for lack of memory, or by somebody"
    assert [text for rank, text in kept(tmp_path) if rank == b"4"] == [b"whole", b"half a li"]
    assert b"[node 1] rank 4 " + by in shown
    assert not any(b"rank 5" in line for line in shown)
    assert shown[-1] == b"[node 1] the reason"
    assert killed_by(signal.SIGSEGV) == "was ended by SIGSEGV"


def test_bus_error_is_told_with_its_causes() -> None:
    """A rank that reads its data set through mapped memory ends by SIGBUS if the volume fails. The
    name of the signal does not tell a user that.
    """
    assert killed_by(signal.SIGBUS) == (
        "was ended by SIGBUS: a file that it had mapped into memory, such as the data set, could "
        "not be read or became shorter, or /dev/shm is full"
    )


def test_a_rank_that_ends_without_a_word_is_named(tmp_path: Path) -> None:
    """A rank that ends without a reason, for example by a library that ends the process, is named
    with its exit status. Otherwise only the other ranks would show an error.
    """
    shown = run(tmp_path, "import os; os._exit(7)", "raise SystemExit(75)")
    assert b"[node 1] rank 4 ended by itself with exit status 7 and gave no reason" in shown
    assert not any(b"rank 5" in line for line in shown)  # exit status 75 says enough


def test_bytes_that_are_no_text_and_endless_lines_pass(tmp_path: Path) -> None:
    """Bytes that are no text pass unchanged, and a line of several MiB passes in pieces."""
    long = "import os\nfor _ in range(48): os.write(1, b'x' * 65536)\nos.write(1, b'end\\n')"
    odd = "import os; os.write(1, b'a\\xff\\x00\\r\\n\\n\\xc3')"
    shown = run(tmp_path, long, odd)
    records = kept(tmp_path)
    assert [text for rank, text in records if rank == b"5"] == [b"a\xff\x00\r", b"", b"\xc3"]
    pieces = [text for rank, text in records if rank == b"4"]
    assert b"".join(pieces) == b"x" * (48 * 65536) + b"end"
    assert max(len(piece) for piece in pieces) <= (1 << 20) + 65536
    assert [text for _, text in records] == shown


def test_a_process_left_behind_by_a_rank_keeps_nothing_waiting(tmp_path: Path) -> None:
    """A node ends although a process that a rank has left behind still writes into the rank's pipe.
    That process ends, too, as nobody reads the pipe any more.
    """
    leave = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sh', '-c', 'while echo more; do :; done'])\n"
        "os.write(1, b'child %d\\n' % child.pid)\n"
    )
    began = time.monotonic()
    shown = run(tmp_path, leave, "print('the other')")
    assert time.monotonic() - began < 50
    assert shown[-1] == b"[node 1] the reason"
    assert b"the other" in shown
    assert b"[node 1] pipes that are still read: 0" in shown
    pid = int(next(line for line in shown if line.startswith(b"child")).split()[1])
    for _ in range(600):  # its writes fail as nobody reads the pipe
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_a_volume_that_hangs_does_not_hold_up_the_ranks(tmp_path: Path) -> None:
    """A volume that hangs does not hold up the ranks: all they print is in the container's log,
    with two warnings. A pipe that nobody reads stands in for the file, because opening it waits for
    ever.
    """
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "node-00001.log")
    shown = run(tmp_path, "for i in range(200_000): print('x' * 80, i)")
    assert [line.split()[1] for line in shown if line.startswith(b"x")] == [
        b"%d" % i for i in range(200_000)
    ]
    warnings = [line for line in shown if b"cannot be written (it does not answer)" in line]
    assert len(warnings) == 2  # when the first line was left out, and before the last words
    assert shown[-1] == b"[node 1] the reason"


def test_a_volume_without_rights_is_said_and_the_ranks_run(tmp_path: Path) -> None:
    """The ranks run although the log cannot be written on the volume, and the container's log says
    why.
    """
    (tmp_path / "logs").write_text("not a folder")
    shown = run(tmp_path, "print('trained')")
    assert b"trained" in shown
    assert b"cannot be written (Not a directory)" in shown[-2]
    assert shown[-1] == b"[node 1] the reason"


def test_nobody_who_reads_standard_output_ends_no_rank(tmp_path: Path) -> None:
    """The ranks run to their end, and the run's log is complete, when nobody reads standard output
    any more.
    """
    read_end, write_end = os.pipe()
    os.close(read_end)
    with start(tmp_path, "for i in range(1000): print(i)", stdout=write_end) as node:
        os.close(write_end)
        assert node.wait(60) == 0
    texts = [text for rank, text in kept(tmp_path) if rank == b"4"]
    assert texts == [b"%d" % i for i in range(1000)]
    assert any(b"standard output is gone" in text for rank, text in kept(tmp_path) if rank == b"-")


def test_at_a_terminal_the_ranks_print_for_themselves(tmp_path: Path) -> None:
    """At a terminal the ranks print directly, and no log is written. A rank draws its progress bar
    only on a terminal.
    """
    master, slave = os.openpty()
    with start(tmp_path, "import sys; print(sys.stdout.isatty())", stdout=slave) as node:
        os.close(slave)
        assert node.wait(60) == 0
    shown = os.read(master, 65536)
    os.close(master)
    assert b"True" in shown
    assert not (tmp_path / "logs").exists()


def test_ranks_end_by_their_lifeline_when_the_node_is_killed(tmp_path: Path) -> None:
    """A rank ends when its entrypoint is killed by SIGKILL."""
    follow = (
        "import os, time\n"
        "from trainer.launch.lifeline import follow_entrypoint\n"
        "follow_entrypoint()\n"
        "print('pid', os.getpid(), flush=True)\n"
        "while True: print('x' * 1000, flush=True)\n"
    )
    with start(tmp_path, follow) as node:
        assert node.stdout
        line = b""
        # A kill by this timer ends the node's output, and so the wait for the next line.
        timer = threading.Timer(LIMIT_SECONDS, node.kill)
        timer.start()
        try:
            while not line.startswith(b"pid"):
                line = node.stdout.readline()
                assert line, f"the rank has not begun within {LIMIT_SECONDS} s"
        finally:
            timer.cancel()
        node.kill()
    pid = int(line.split()[1])
    deadline = time.monotonic() + LIMIT_SECONDS
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the rank goes on without its entrypoint"
        time.sleep(0.1)
