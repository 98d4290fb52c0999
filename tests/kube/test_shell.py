"""`./disttrain shell` beside a rank in a real pod, typed on a real terminal of this machine."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict
from fcntl import ioctl
from struct import pack

import pytest

from cli.shell.command import find_ranks
from cli.stack_outputs import RunPlace
from infra.kube.api_server.exec_stream import SILENCE_SECONDS
from tests.kube.lab import LIMIT_SECONDS, PROJECT, Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE

# Starts two ranks. The second one starts a helper with the same variables.
RANKS = """
import os, subprocess, sys, time
def start(rank, program):
    variables = {**os.environ, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    return subprocess.Popen([sys.executable, "-c", program], env=variables)
wait = "import time; time.sleep(600)"
helped = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{wait}'])"
ranks = start("0", wait), start("1", helped)
time.sleep(600)
"""
# Repeats each line with the terminal's size and the rank's variables, until the line `end`.
ECHO = """
import os
print("ready", flush=True)
while (line := input()) != "end":
    size = os.get_terminal_size()
    print("seen", line, size.columns, size.lines, "rank", os.environ["RANK"], flush=True)
raise SystemExit(7)
"""
# The command as people start it on a terminal, with the outputs of the stack given to it.
SHELL = """
import fcntl, json, sys, termios
if sys.stdin.isatty():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import cli.shell.command as command
from cli.__main__ import main
from cli.stack_outputs import Access, RunPlace
given = json.loads(sys.argv[1])
place = RunPlace(**{**given, "access": Access(**given["access"])})
command.run_place = lambda stack: place
sys.exit(main(["shell", *sys.argv[2:]]))
"""


def start_run(lab: Lab, name: str) -> RunPlace:
    """Start a run of one pod with two ranks, and return its place."""
    run = Run(lab, lab.namespace(), name)
    status, output = run.hand_over()
    assert status == 0, output
    run.make(image=PYTHON_IMAGE, command=["python3", "-c", RANKS], args=[])
    found = RunPlace(
        lab.access(), run.namespace, run.owner, PYTHON_IMAGE, "/data/runs/x", run.name, "none"
    )
    wait_for("two ranks", lambda: sorted(find_ranks(lab.api, found)) == [0, 1])
    return found


@pytest.fixture(scope="module")
def place(lab: Lab) -> RunPlace:
    """Return the place of the run that most tests share."""
    return start_run(lab, "shell")


class Terminal:
    """A `./disttrain shell` on a terminal, with the keys that a person types and the screen."""

    def __init__(self, place: RunPlace, *words: str) -> None:
        self.keyboard, there = pty.openpty()
        self.before = termios.tcgetattr(there)
        self.resize(80, 24)
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", SHELL, json.dumps(asdict(place)), *words],
            cwd=PROJECT,
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
        )
        self.there = there

    def resize(self, columns: int, lines: int) -> None:
        ioctl(self.keyboard, termios.TIOCSWINSZ, pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def wait_for_words(self, words: str) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while words not in self.seen:
            ready, _, _ = select.select([self.keyboard], [], [], 0.2)
            if ready:
                self.seen += os.read(self.keyboard, 4096).decode(errors="replace")
            assert time.monotonic() < end, f"waited for {words!r}, and saw {self.seen!r}"

    def type_until_size(self, columns: int, lines: int) -> None:
        """Type lines until an answer has this size of the terminal.

        A new size does not travel with the keys, and may arrive some lines later.
        """
        end = time.monotonic() + LIMIT_SECONDS
        while f"seen hello {columns} {lines} rank 1" not in self.seen:
            self.seen = ""
            self.type("hello\r")
            self.wait_for_words(" rank 1")
            assert time.monotonic() < end, self.seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_SECONDS)
        os.close(self.keyboard)
        os.close(self.there)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened = list[Terminal]()
    yield opened
    for terminal in opened:
        terminal.close()


def test_keys_screen_and_size_go_through(place: RunPlace, terminals: list[Terminal]) -> None:
    terminal = Terminal(place, "--rank", "1", "--", "python3", "-c", ECHO)
    terminals.append(terminal)
    terminal.wait_for_words("ready")
    terminal.type_until_size(80, 24)
    terminal.resize(132, 43)
    terminal.type_until_size(132, 43)
    terminal.type("end\r")
    assert terminal.process.wait(LIMIT_SECONDS) == 7
    assert termios.tcgetattr(terminal.there) == terminal.before


def test_ctrl_c_goes_to_the_command_in_the_pod(place: RunPlace, terminals: list[Terminal]) -> None:
    wait = "import time\ntry:\n  print('ready', flush=True)\n  time.sleep(600)\n"
    wait += "except KeyboardInterrupt: raise SystemExit(9)"
    terminal = Terminal(place, "--", "python3", "-c", wait)
    terminals.append(terminal)
    terminal.wait_for_words("ready")
    terminal.type("\x03")
    assert terminal.process.wait(LIMIT_SECONDS) == 9


def test_lost_pod_ends_the_shell_and_leaves_the_terminal(
    lab: Lab, terminals: list[Terminal]
) -> None:
    """A shell whose pod is deleted ends, and gives the terminal back in its former mode.

    Otherwise the terminal would stay in raw mode, and would not show what the person types.
    """
    place = start_run(lab, "lost")
    terminal = Terminal(place, "--", "python3", "-c", ECHO)
    terminals.append(terminal)
    terminal.wait_for_words("ready")
    lab.kubectl("-n", place.namespace, "delete", "pod", "--all", "--grace-period=1")
    assert terminal.process.wait(LIMIT_SECONDS) not in (0, 7)
    assert termios.tcgetattr(terminal.there) == terminal.before


def test_shell_that_is_told_to_end_leaves_the_terminal(
    place: RunPlace, terminals: list[Terminal]
) -> None:
    """A shell that gets SIGTERM ends, and gives the terminal back in its former mode."""
    terminal = Terminal(place, "--", "python3", "-c", ECHO)
    terminals.append(terminal)
    terminal.wait_for_words("ready")
    terminal.process.terminate()
    assert terminal.process.wait(LIMIT_SECONDS) == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.there) == terminal.before


def shell(place: RunPlace, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `./disttrain shell` without a terminal to its end."""
    return subprocess.run(
        [sys.executable, "-c", SHELL, json.dumps(asdict(place)), *words],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_command_without_a_terminal_gives_its_output_and_status(lab: Lab, place: RunPlace) -> None:
    ask = "import os, sys; print(os.environ['RANK'], os.environ['RANK_PID'])\n"
    ask += "print('a warning', file=sys.stderr); raise SystemExit(5)"
    done = shell(place, "--rank", "1", "--", "python3", "-c", ask)
    pid = find_ranks(lab.api, place)[1].pid
    assert (done.returncode, done.stdout, done.stderr) == (5, f"1 {pid}\n", "a warning\n")


def test_command_that_reads_its_input_finds_the_end(place: RunPlace) -> None:
    """A command in `shell` that reads its input finds its end at once, and does not wait."""
    done = shell(place, "--", "python3", "-c", "import sys; print(repr(sys.stdin.read()))")
    assert (done.returncode, done.stdout) == (0, "''\n"), done.stderr


@pytest.mark.timeout(LIMIT_SECONDS)
def test_output_comes_while_the_command_runs(place: RunPlace) -> None:
    """The output of a command arrives while the command runs, even a short line into a pipe."""
    say = "import time; print('first', flush=True); time.sleep(3600)"
    words = json.dumps(asdict(place)), "--", "python3", "-c", say
    with subprocess.Popen(
        [sys.executable, "-c", SHELL, *words],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "first\n"
        process.kill()


@pytest.mark.in_depth
def test_command_may_be_silent_for_long(place: RunPlace) -> None:
    """A command in `shell` may print nothing for longer than the connections of other commands may.

    Programs of this project send signs of life; a command of the user does not.
    """
    wait = f"import time; time.sleep({SILENCE_SECONDS + 10}); print('done')"
    done = shell(place, "--", "python3", "-c", wait)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_open_shell_beside_a_rank_is_no_rank(
    lab: Lab, place: RunPlace, terminals: list[Terminal]
) -> None:
    """A shell that is open beside a rank is not taken for a rank.

    The shell has the rank's variables, and its parent process is not in the pod.
    """
    before = find_ranks(lab.api, place)
    terminal = Terminal(place, "--rank", "1", "--", "python3", "-c", ECHO)
    terminals.append(terminal)
    terminal.wait_for_words("ready")
    assert find_ranks(lab.api, place) == before
    terminal.type("end\r")
    assert terminal.process.wait(LIMIT_SECONDS) == 7


def test_helper_of_a_rank_is_no_rank(place: RunPlace) -> None:
    """A process that a rank has started is not taken for the rank, though both have `RANK=1`."""
    ask = "import os; print(open(f\"/proc/{os.environ['RANK_PID']}/cmdline\").read())"
    assert "subprocess.run" in shell(place, "--rank", "1", "--", "python3", "-c", ask).stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--rank", "7", "--", "ps"), "--rank: 7 cannot be used: the ranks that run are 0, 1."),
        ((), "a shell needs a terminal"),
        (("--", "no-such-program"), "no-such-program: No such file or directory"),
    ],
)
def test_what_cannot_be_is_said(place: RunPlace, words: tuple[str, ...], reason: str) -> None:
    done = shell(place, *words)
    assert done.returncode != 0
    assert reason in done.stderr
