"""Scripts see only the variables that they are given, and there is one way to become root."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from infra.node.shell_program import (
    ROOT_FUNCTIONS,
    SCRIPTS,
    Privilege,
    assemble_program,
    script_text,
)
from tests.unit.run_script import ALL_SCRIPTS, required_variables, run_text

NOISE = "noise-of-the-environment"
AMBIENT = (
    *("DRY_RUN", "RELEASE", "PURGE", "TRANSFERRED", "STORE_ROOT", "OWNER", "GENERATION_ID"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("K3S_FORCE", "K3S_TOKEN", "K3S_URL", "K3S_BUNDLE", "INSTALL_K3S_EXEC", "CDPATH", "TMPDIR"),
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "GREP_OPTIONS", "KUBECONFIG", "BASH_ENV"),
)


def mentioned(text: str) -> set[str]:
    """Return the names of the variables that a script's text uses."""
    return {*re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", text)} - {"PATH", "HOME"}


@pytest.mark.parametrize("script", ALL_SCRIPTS)
def test_environment_of_the_host_reaches_no_script(script: str) -> None:
    """No variable of the host's environment reaches a script that runs as root. A DRY_RUN, RELEASE
    or proxy that happens to be set would change what the script does.

    For this test, the last line of the script, which would begin to act, is replaced by a command
    that shows the script's variables.
    """
    text = script_text(script)
    assert text.rstrip().endswith('main "$@"')
    shown = text.rstrip().removesuffix('main "$@"') + "set; env"
    given = required_variables(script)
    names = {*AMBIENT, *mentioned(text)} - {*given}
    done = run_text(shown, "create", given, "root", dict.fromkeys(names, NOISE))
    assert done.returncode == 0, done.stderr
    assert NOISE not in done.stdout
    assert {f"{name}={value}" for name, value in given.items()} <= {*done.stdout.splitlines()}


@pytest.mark.parametrize("script", ALL_SCRIPTS)
def test_variables_of_the_user_change_no_script(script: str) -> None:
    """A script that runs as the user sees no variable of the user's under one of its own names. The
    other variables of the user stay, because kubectl needs them.
    """
    text = script_text(script)
    shown = text.rstrip().removesuffix('main "$@"') + "set"
    given = required_variables(script)
    noise = dict.fromkeys(mentioned(text) - {*given}, NOISE)
    done = run_text(shown, "create", given, "user", noise)
    assert done.returncode == 0, done.stderr
    assert NOISE not in done.stdout


def test_users_credentials_reach_kubectl() -> None:
    """A script that runs as the user keeps variables for credentials, which kubectl needs."""
    done = run_text("env", "create", {}, "user", {"AWS_PROFILE": "mine"})
    assert "AWS_PROFILE=mine" in done.stdout


def test_dry_run_of_the_host_does_not_make_up_lie(tmp_path: Path) -> None:
    """A script makes its folder although DRY_RUN is set on the host. Otherwise `up` would record a
    folder as made that does not exist.
    """
    root = tmp_path / "data"
    text = script_text("data-root.sh")
    done = run_text(text, "create", {"DATA_ROOT": str(root)}, "root", {"DRY_RUN": "1"})
    assert done.returncode == 0, done.stderr
    assert (root / "runs").is_dir()


def test_script_has_the_usual_folders_on_its_path() -> None:
    """A script that runs as root finds programs in /usr/local/bin, which sudo's PATH lacks on the
    RHEL family, and its programs print in the language of the locale C.
    """
    done = run_text(
        'echo "$PATH"; locale 2>/dev/null | head -n 1; echo "$LC_ALL"',
        "create",
        {},
        "root",
        {"PATH": "/bin", "LC_ALL": "de_DE.UTF-8"},
    )
    assert "/usr/local/bin" in done.stdout.splitlines()[0].split(":")
    assert done.stdout.splitlines()[-1] == "C"


def test_every_include_is_part_of_the_text() -> None:
    """The text of a script contains the files that it includes, as only this text is sent to the
    host.
    """
    for script in ALL_SCRIPTS:
        assert not re.search(r"^\. ", script_text(script), re.MULTILINE), script


def test_every_file_is_read_in_one_sitting() -> None:
    """No file of a script has more than 200 lines, so that a reader can keep it in mind."""
    files = [*SCRIPTS.rglob("*.sh")]
    assert len(files) > 10
    lengths = {str(file): len(file.read_text().splitlines()) for file in files}
    assert {file: length for file, length in lengths.items() if length > 200} == {}


@pytest.mark.parametrize("privilege", ["root", "root-if-possible", "user"])
def test_long_value_stops_no_other_program(privilege: Privilege) -> None:
    """A script can start programs although one of its variables is longer than 128 KiB, as the
    authorities of a company may be. Linux starts no program with such a variable in its
    environment.
    """
    value = "a line with 'quotes'\n" * 12_000
    done = run_text('printf %s "$VALUE" | cksum', "", {"VALUE": value}, privilege, {"VALUE": "x"})
    assert done.returncode == 0, done.stderr
    there = subprocess.run(["cksum"], input=value.encode(), capture_output=True, check=True)
    assert done.stdout == there.stdout.decode()


def test_lock_that_fails_is_not_taken(tmp_path: Path) -> None:
    """If `flock` cannot be started, the script ends and says so. It does not say that another run
    has the lock.
    """
    (tmp_path / "flock").write_text("#!/bin/sh\necho broken >&2\nexit 126\n")
    (tmp_path / "flock").chmod(0o755)
    text = f"LOCK={tmp_path}/lock\n{script_text('lib/turn.sh')}\none_at_a_time\necho went on\n"
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run_text(text, "", {}, "user", {"PATH": path})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "broken\nflock does not work on this host; the reason is above\n"


# --- becoming root ---


def as_root(
    body: str, password: str, path: Path, privilege: Privilege = "root"
) -> subprocess.CompletedProcess[str]:
    """Run a script's text as root with this password for sudo; programs in the folder `path` come
    first.
    """
    program = assemble_program(body, {"VALUE": "it's 'quoted' $HOME"}, privilege, password)
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/sh", "-s", "--", "create"],
        input=program,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def fake_user(folder: Path) -> Path:
    """Make stand-ins for `id` and `sudo` in the folder, as an ordinary user sees them whose
    password is `pass'word`; return the folder.
    """
    (folder / "id").write_text('#!/bin/sh\n[ "$1" = -un ] && echo admin || echo 1000\n')
    (folder / "sudo").write_text(
        '#!/bin/sh\necho "sudo $1 $2" >>"${0%/*}/calls"\n'
        'if [ "$1" = -A ]; then\n'
        '  stat -c "%a %n" "$SUDO_ASKPASS" >>"${0%/*}/helpers"\n'
        '  [ "$("$SUDO_ASKPASS")" = "pass\'word" ] || { echo "Sorry, try again." >&2; exit 1; }\n'
        'fi\nshift\nunset SUDO_PASSWORD\nexec "$@"\n'
    )
    for name in ("id", "sudo"):
        (folder / name).chmod(0o755)
    return folder


BODY = 'echo "$1: $VALUE ${ROOT_PROBLEM:-}"; cat; env; true\n'


def test_script_gets_its_variables_as_root(tmp_path: Path) -> None:
    """A script of root gets its action and its variables unchanged."""
    done = as_root(BODY, "", tmp_path)
    assert done.stdout.startswith("create: it's 'quoted' $HOME \n")


def test_sudo_gets_its_password_from_a_helper_and_never_by_argument(tmp_path: Path) -> None:
    """sudo gets the password from a helper program (`sudo -A`), and not as an argument, which other
    users could see.
    """
    done = as_root(BODY, "pass'word", fake_user(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("create: it's 'quoted' $HOME \n")
    assert (tmp_path / "calls").read_text() == "sudo -A true\nsudo -A sh\n"


def as_root_beside_noexec(folder: Path, noexec: int) -> subprocess.CompletedProcess[str]:
    """Run a script as root where the first `noexec` of the four folders for the helper allow no
    programs.

    Each of these folders is then a file system of its own, which only this run sees. At the end,
    the output has the names of helpers that were left there.
    """
    tmp, home, tools = folder / "tmp", folder / "home", folder / "tools"
    for each in (tmp, home, tools):
        each.mkdir()
    fake_user(tools)
    places = [str(tmp), "/dev/shm", "/var/tmp", str(home)]
    mounts = [f"mount -t tmpfs -o noexec none {place}" for place in places[:noexec]]
    begin = " && ".join([*mounts, "sh -s -- create"])
    search = f"find {' '.join(places)} -name 'disttrain.??????' -user 0 -newer {tools}/sudo"
    return subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", f"{begin}; status=$?; {search}; exit $status"],
        input=assemble_program("echo done", {}, "root", "pass'word"),
        env={
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "TMPDIR": str(tmp),
            "HOME": str(home),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("noexec", range(4))
def test_password_reaches_sudo_where_tmp_is_noexec(tmp_path: Path, noexec: int) -> None:
    """The helper that gives sudo its password is put into the first folder in which programs may
    run, and is removed afterwards. On many machines /tmp allows no programs, and the password would
    seem to be wrong.
    """
    done = as_root_beside_noexec(tmp_path, noexec)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    folder = [f"{tmp_path}/tmp", "/dev/shm", "/var/tmp", f"{tmp_path}/home"][noexec]
    for helper in (tmp_path / "tools/helpers").read_text().splitlines():
        assert helper.startswith(f"700 {folder}/disttrain."), "for its user alone"


def test_machine_without_folders_for_programs_is_named(tmp_path: Path) -> None:
    """If the helper can run in none of the folders, the error names them and says what to do. It
    does not blame sudo or the password.
    """
    done = as_root_beside_noexec(tmp_path, noexec=4)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"of the folders {tmp_path}/tmp /dev/shm /var/tmp {tmp_path}/home" in done.stderr
    assert "Let user admin of this host run programs in one of them" in done.stderr
    assert "refuses" not in done.stderr


def test_password_does_not_reach_the_script(tmp_path: Path) -> None:
    """The script sees neither the password for sudo nor a variable of sudo."""
    for privilege in ("root", "root-if-possible"):
        done = as_root("env", "pass'word", fake_user(tmp_path), privilege)
        assert done.returncode == 0, done.stderr
        assert "pass'word" not in done.stdout
        assert "SUDO" not in done.stdout


def test_wrong_sudo_password_fails_and_the_setting_is_named(tmp_path: Path) -> None:
    done = as_root(BODY, "wrong", fake_user(tmp_path))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "sudoPassword: sudo of this host refuses it for user admin: Sorry" in done.stderr


@pytest.mark.parametrize("password", ["", "pass'word"])
def test_host_without_sudo_is_named(tmp_path: Path, password: str) -> None:
    """If the host has no sudo, the error says so, and does not ask for a password."""
    (fake_user(tmp_path) / "sudo").unlink()
    done = subprocess.run(
        ["/bin/sh", "-s", "--", "create"],
        input=assemble_program(BODY, {}, "root", password),
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "user admin of this host is not root, and sudo is not installed on this host: install it "
        "there, or let root log in\n"
    )


def test_wrong_password_is_given_once(tmp_path: Path) -> None:
    """sudo, which asks three times, gets a wrong password only once. After three wrong passwords
    some machines lock the account (pam_faillock), and the right one would be refused, too.
    """
    folder = fake_user(tmp_path)
    asks = 'asked=0; for each in 1 2 3; do "$SUDO_ASKPASS" >/dev/null && asked=$((asked + 1)); done'
    (folder / "sudo").write_text(f'#!/bin/sh\n{asks}\necho "$asked incorrect" >&2; exit 1\n')
    assert "refuses it for user admin: 1 incorrect\n" in as_root(BODY, "wrong", folder).stderr


def test_wrong_sudo_password_lets_the_doctor_look_as_the_user(tmp_path: Path) -> None:
    """With a wrong password for sudo, a script that needs root only if possible, such as the
    doctor's, runs as the user and is told the reason.
    """
    done = as_root(BODY, "wrong", fake_user(tmp_path), "root-if-possible")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("create: it's 'quoted' $HOME Sorry, try again.\n")


def test_without_a_password_sudo_must_not_ask(tmp_path: Path) -> None:
    """Without a password, sudo is called so that it never asks for one (`sudo -n`)."""
    assert as_root(BODY, "", fake_user(tmp_path)).returncode == 0
    assert (tmp_path / "calls").read_text() == "sudo -n true\nsudo -n sh\n"


def test_becoming_root_is_written_once() -> None:
    """Only one file of `infra` and `cli` calls sudo, so that scripts, the doctor and the image's
    programs all become root in the same way.
    """
    project = SCRIPTS.parents[2]
    sources = [path for top in ("infra", "cli") for path in (project / top).rglob("*.*")]
    calls = re.compile(r"\bsudo (-[nAS]|\"\$)")
    found = {
        str(path.relative_to(SCRIPTS))
        for path in sources
        if path.suffix in (".py", ".sh") and calls.search(path.read_text())
    }
    assert found == {ROOT_FUNCTIONS}
