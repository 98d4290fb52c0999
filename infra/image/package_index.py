"""Reads where pip on this machine gets packages, so that the image build can do the same.

https://pip.pypa.io/en/stable/topics/configuration/
"""

import configparser
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

# pip's option -> the variables that pip and uv read for it
_VARIABLES = {
    "index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    "trusted-host": ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST"),
    "timeout": ("PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT"),
}
_CA_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


def pip_files(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return the configuration files of pip that exist. A later one overrides an earlier one.

    Args:
        environment: the variables of this process. An existing file in PIP_CONFIG_FILE counts in
            place of the user's files, and the null device there means that no file counts at all.
        home: home folder of the user.
    """
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    files = [Path("/etc/pip.conf")]
    if not (named and Path(named).exists()):
        config = Path(environment.get("XDG_CONFIG_HOME", home / ".config"))
        files += [home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
        files.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
    if environment.get("VIRTUAL_ENV"):
        files.append(Path(environment["VIRTUAL_ENV"]) / "pip.conf")
    if named:
        files.append(Path(named))
    return [file for file in files if file.is_file()]


def pip_options(environment: Mapping[str, str], files: Sequence[Path]) -> dict[str, str]:
    """Return the options that pip would use, from its files and then from its variables.

    The sections [global] and [install] of the files are read. Only the options in _VARIABLES and
    the CA bundle (`cert`) are kept. Like pip, it takes `index_url` for `index-url`.

    Raises:
        ValueError: a file is no configuration that pip could read.
    """
    by_section: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except configparser.Error as error:
            reason = error.message.partition("\n")[0]  # The next line may show a password.
            raise ValueError(f"pip cannot read its configuration {file}: {reason}") from None
        for section in by_section.keys() & parser.sections():
            named = parser.items(section)
            by_section[section] |= {name.replace("_", "-"): value for name, value in named}
    options = by_section["global"] | by_section["install"]
    for option, (variable, _) in _VARIABLES.items():
        if environment.get(variable):
            options[option] = environment[variable]
    if ca := next((environment[name] for name in _CA_VARIABLES if environment.get(name)), None):
        options["cert"] = ca
    return {
        name: " ".join(options[name].split()) for name in (*_VARIABLES, "cert") if name in options
    }


def shell_exports(options: Mapping[str, str]) -> str:
    """Return shell text that sets these options for pip and uv; empty if there are none."""
    lines = [
        f"export {variable}={shlex.quote(options[option])}\n"
        for option, variables in _VARIABLES.items()
        if option in options
        for variable in variables
    ]
    return "".join(lines)
