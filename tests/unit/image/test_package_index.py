"""The build installs packages from the index that pip on this machine uses, from pip's files and
variables.
"""

import os
import subprocess
from pathlib import Path

import pytest

from infra.image.package_index import pip_files, pip_options, shell_exports


def conf(path: Path, text: str) -> Path:
    """Write a file of pip's; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_machine_without_settings_gives_nothing_to_the_build() -> None:
    assert pip_options({}, []) == {}
    assert shell_exports({}) == ""


def test_later_files_win_over_earlier_ones_and_variables_over_files(tmp_path: Path) -> None:
    site = conf(tmp_path / "a", "[global]\nindex-url = https://one\ncert = /ca1\ntimeout = 5\n")
    user = conf(tmp_path / "b", "[global]\nindex-url = https://two\n[install]\ntimeout = 7\n")
    assert pip_options({}, [site, user]) == {
        "index-url": "https://two",
        "timeout": "7",
        "cert": "/ca1",
    }
    variables = {"PIP_INDEX_URL": "https://three", "SSL_CERT_FILE": "/ca2"}
    assert pip_options(variables, [site, user])["index-url"] == "https://three"
    assert pip_options(variables, [site, user])["cert"] == "/ca2"
    assert pip_options({**variables, "PIP_CERT": "/ca3"}, [])["cert"] == "/ca3"


def test_options_that_name_no_index_are_left_out(tmp_path: Path) -> None:
    """Options of pip that do not say where packages come from are not passed on to the build."""
    file = conf(tmp_path / "c", "[global]\nuser = yes\nfind-links = /opt\nno-color = 1\n")
    assert pip_options({"PIP_FIND_LINKS": "/opt"}, [file]) == {}


def test_pips_files_are_found_where_pip_looks(tmp_path: Path) -> None:
    """The files of the user and of the virtual environment are read, in pip's order."""
    user = conf(tmp_path / "home/.config/pip/pip.conf", "")
    venv = conf(tmp_path / "venv/pip.conf", "")
    environment = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    found = pip_files(environment, tmp_path / "home")
    assert [file for file in found if tmp_path in file.parents] == [user, venv]


def test_named_file_replaces_the_users(tmp_path: Path) -> None:
    """If PIP_CONFIG_FILE names a file that exists, it is read in place of the user's file, as pip
    does. Otherwise the build would use the index of the user's file.
    """
    user = conf(tmp_path / "home/.config/pip/pip.conf", "")
    named = conf(tmp_path / "named", "")
    found = pip_files({"PIP_CONFIG_FILE": str(named)}, tmp_path / "home")
    assert [file for file in found if tmp_path in file.parents] == [named]
    found = pip_files({"PIP_CONFIG_FILE": str(tmp_path / "missing")}, tmp_path / "home")
    assert [file for file in found if tmp_path in file.parents] == [user]


def test_null_device_means_no_files(tmp_path: Path) -> None:
    """`PIP_CONFIG_FILE=/dev/null` is pip's own way to say that no configuration file is read, and
    none is.
    """
    conf(tmp_path / "home/.config/pip/pip.conf", "")
    venv = conf(tmp_path / "venv/pip.conf", "").parent
    environment = {"PIP_CONFIG_FILE": os.devnull, "VIRTUAL_ENV": str(venv)}
    assert pip_files(environment, tmp_path / "home") == []


def test_underscores_in_keys_are_hyphens(tmp_path: Path) -> None:
    """`index_url` is the same key as `index-url`, as it is for pip."""
    site = conf(tmp_path / "a", "[global]\nindex-url = https://one\n")
    user = conf(tmp_path / "b", "[global]\nindex_url = https://two\ntrusted_host = two\n")
    assert pip_options({}, [site, user]) == {"index-url": "https://two", "trusted-host": "two"}


def test_damaged_file_of_pip_is_named(tmp_path: Path) -> None:
    """A file of pip that cannot be read is named in the error, which does not show its content."""
    file = conf(tmp_path / "pip.conf", "index-url = https://me:sekret@one\n")
    words = f"pip cannot read its configuration {file}: .*section"
    with pytest.raises(ValueError, match=words) as error:
        pip_options({}, [file])
    assert "sekret" not in str(error.value)


def test_the_shell_text_gives_pip_and_uv_the_very_values(tmp_path: Path) -> None:
    """The shell text for the build gives pip and uv exactly these values, whatever signs are in
    them.
    """
    hard = "https://me:p'a$(id)`s\"s@index/simple"
    options = pip_options({"PIP_INDEX_URL": hard, "PIP_EXTRA_INDEX_URL": "https://a https://b"}, [])
    exports = conf(tmp_path / "exports", shell_exports(options))
    show = f'. {exports}; printf "%s\\n" "$PIP_INDEX_URL" "$UV_DEFAULT_INDEX" "$UV_INDEX"'
    done = subprocess.run(["sh", "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [hard, hard, "https://a https://b"]
