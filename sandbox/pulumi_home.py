"""Pulumi's environment for the sandbox: own home with both plugins, file backend, no prompts."""

import os
import subprocess
import tarfile
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.toolchain import COMMAND_PROVIDER, KUBERNETES_PROVIDER, TOOLS, bin_dir, tool_folder

PLUGINS = {"kubernetes": KUBERNETES_PROVIDER, "command": COMMAND_PROVIDER}


def pulumi_environment(backend: Path, venv: Path) -> dict[str, str]:
    """The environment in which `pulumi` runs with the sandbox's tools.

    Args:
        backend: folder of the stacks' states.
        venv: the virtualenv of requirements.txt; its python comes first on PATH.
    """
    backend.mkdir(parents=True, exist_ok=True)
    tools = bin_dir()
    path = os.pathsep.join((str(venv / "bin"), str(tools), os.environ.get("PATH", "")))
    return {
        **os.environ,
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


def plugin_home() -> Path:
    """A PULUMI_HOME with both provider plugins installed where the engine expects them."""
    folders = {tool.name: tool_folder(tool) for tool in TOOLS}
    binaries = {name: folders[f"pulumi-resource-{name}"] for name in PLUGINS}

    def install(home: Path) -> None:
        for name, version in PLUGINS.items():
            program = f"pulumi-resource-{name}"
            archive = home / f"{program}.tar.gz"
            with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
                tar.add(binaries[name] / program, arcname=program)
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

    return cached_folder("pulumi-home", content_key(*(str(p) for p in binaries.values())), install)
