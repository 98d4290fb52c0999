"""Makes Pulumi's environment in the sandbox: both plugins, a file backend, and no prompts."""

import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.network import POOL
from sandbox.toolchain import bin_dir, origin, tool_folder
from sandbox.tools.cluster import COMMAND_PROVIDER, KUBERNETES_PROVIDER, TOOLS

PLUGINS = {"kubernetes": KUBERNETES_PROVIDER, "command": COMMAND_PROVIDER}
# This variable names a program that replaces the pinned Kubernetes provider, so that the tests can
# run with another version: docs/sandbox.md.
PLUGIN_VARIABLE = "DISTTRAIN_KUBERNETES_PLUGIN"
# This variable names a folder, such as that of an unpacked release, whose `pulumi` and language
# host replace the sandbox's own: docs/sandbox.md.
ENGINE_VARIABLE = "DISTTRAIN_ENGINE"
ENGINE_PROGRAMS = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")


def pulumi_environment(backend: Path, venv: Path) -> dict[str, str]:
    """The environment in which `pulumi` runs with the sandbox's tools.

    Args:
        backend: folder of the stacks' states.
        venv: the virtualenv of requirements.txt; its python comes first on PATH.

    Raises:
        ValueError: `$DISTTRAIN_ENGINE` is not a folder with the three programs.
    """
    backend.mkdir(parents=True, exist_ok=True)
    tools = bin_dir()
    engine = [str(given)] if (given := _given_engine()) else []
    path = os.pathsep.join((str(venv / "bin"), *engine, str(tools), os.environ.get("PATH", "")))
    return {
        **os.environ,
        **past_proxy(os.environ),
        "PATH": path + ":/usr/sbin:/sbin",
        "PULUMI_HOME": str(plugin_home()),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": os.environ.get("PULUMI_CONFIG_PASSPHRASE", ""),
        "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_SKIP_CONFIRMATIONS": "true",
        "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    }


def past_proxy(given: Mapping[str, str]) -> dict[str, str]:
    """The variables by which the clusters of the sandbox are reached past a proxy of the shell.

    Args:
        given: the shell's variables. Without a proxy among them the result is empty.
    """
    if not (given.get("https_proxy") or given.get("HTTPS_PROXY")):
        return {}
    there = given.get("no_proxy") or given.get("NO_PROXY") or ""
    value = ",".join(dict.fromkeys(filter(None, (*there.split(","), str(POOL)))))
    return {"NO_PROXY": value, "no_proxy": value}


def runs_policy_packs() -> bool:
    """Whether the engine's Python language host can run policy packs.

    The language host that the sandbox builds from Go modules is too old for them.
    """
    if _given_engine():
        return True
    engine = next(tool for tool in TOOLS if tool.name == "pulumi")
    return origin(engine).startswith("official release")


def plugin_home() -> Path:
    """A folder for PULUMI_HOME in which both provider plugins are installed.

    The engine asks for the version of the Python package. So a program that replaces the pinned
    provider is installed under that version.

    Raises:
        ValueError: `$DISTTRAIN_KUBERNETES_PLUGIN` is not a program.
    """
    folders = {tool.name: tool_folder(tool) for tool in TOOLS}
    pinned = {name: folders[f"pulumi-resource-{name}"] for name in PLUGINS}
    programs = {name: folder / f"pulumi-resource-{name}" for name, folder in pinned.items()}
    identity: list[str | Path] = [str(folder) for folder in pinned.values()]
    if given := _given_program():
        programs["kubernetes"] = given
        identity.append(given)  # a Path stands for its content

    def install(home: Path) -> None:
        for name, version in PLUGINS.items():
            program = f"pulumi-resource-{name}"
            archive = home / f"{program}.tar.gz"
            with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
                tar.add(programs[name], arcname=program)
            subprocess.run(
                [
                    str(bin_dir() / "pulumi"),
                    *("plugin", "install", "resource", name, version, "--file", str(archive)),
                ],
                env={**os.environ, "PULUMI_HOME": str(home), "PULUMI_SKIP_UPDATE_CHECK": "true"},
                check=True,
                capture_output=True,
            )
            archive.unlink()

    return cached_folder("pulumi-home", content_key(*identity), install)


def _given_engine() -> Path | None:
    given = os.environ.get(ENGINE_VARIABLE)
    if not given:
        return None
    folder = Path(given)
    missing = [name for name in ENGINE_PROGRAMS if not os.access(folder / name, os.X_OK)]
    if missing:
        raise ValueError(
            f"{ENGINE_VARIABLE}: {given!r} cannot be used: it has no program {missing[0]}; name "
            "the folder of an unpacked release of Pulumi, or unset the variable"
        )
    return folder.resolve()


def _given_program() -> Path | None:
    given = os.environ.get(PLUGIN_VARIABLE)
    if not given:
        return None
    if not (Path(given).is_file() and os.access(given, os.X_OK)):
        raise ValueError(f"{PLUGIN_VARIABLE}: {given!r} is not a program; name one, or unset it")
    return Path(given)
