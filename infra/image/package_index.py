"""Reads where pip on this machine gets packages, so that the image build can do the same.

https://pip.pypa.io/en/stable/topics/configuration/
"""

import configparser
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
    """Return the configuration files of pip that exist. A later one overrides an earlier one."""
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    files.append(Path(environment.get("XDG_CONFIG_HOME", home / ".config")) / "pip" / "pip.conf")
    files.append(home / "Library" / "Application Support" / "pip" / "pip.conf")
    if environment.get("VIRTUAL_ENV"):
        files.append(Path(environment["VIRTUAL_ENV"]) / "pip.conf")
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    return [file for file in files if file.is_file()]


def pip_options(environment: Mapping[str, str], files: Sequence[Path]) -> dict[str, str]:
    """Return the options that pip would use, from its files and then from its variables.

    The sections [global] and [install] of the files are read. Only the options in _VARIABLES and
    the CA bundle (`cert`) are kept.
    """
    parser = configparser.RawConfigParser()
    parser.read(files)
    options: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            options |= dict(parser.items(section))
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
