"""The sandbox's engine of Pulumi and the plugins that it gets, and how variables replace them."""

import shutil
from pathlib import Path

import pytest
import requests.utils

from sandbox.pulumi_home import (
    ENGINE_PROGRAMS,
    ENGINE_VARIABLE,
    PLUGIN_VARIABLE,
    past_proxy,
    plugin_home,
    pulumi_environment,
)
from sandbox.tools.cluster import KUBERNETES_PROVIDER


def test_another_kubernetes_provider_takes_the_place_of_the_pinned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable can name another Kubernetes provider. It is installed under the version that the
    Python package asks the engine for, and each content gets a folder of its own.
    """
    monkeypatch.delenv(PLUGIN_VARIABLE, raising=False)
    pinned = plugin_home()
    program = tmp_path / "other"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(PLUGIN_VARIABLE, str(program))
    home = plugin_home()
    try:
        assert home != pinned
        there = home / f"plugins/resource-kubernetes-v{KUBERNETES_PROVIDER}"
        assert (there / "pulumi-resource-kubernetes").read_text() == "#!/bin/sh\n"
        command = "resource-command-*/pulumi-resource-command"
        assert [*(home / "plugins").glob(command)]
        program.write_text("#!/bin/sh\nexit 1\n")  # the same path with another content
        again = plugin_home()
        assert again != home
        shutil.rmtree(again)
    finally:
        shutil.rmtree(home)


def test_a_plugin_that_is_no_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLUGIN_VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=f"{PLUGIN_VARIABLE}: .* is not a program"):
        plugin_home()


def test_another_engine_takes_the_place_of_the_sandboxs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable can name a folder with another engine. All its programs must be there, because an
    engine of one release with a language host of another one fails.
    """
    monkeypatch.setenv(ENGINE_VARIABLE, str(tmp_path))
    for name in ENGINE_PROGRAMS:
        with pytest.raises(ValueError, match=f"{ENGINE_VARIABLE}: .* it has no program {name};"):
            pulumi_environment(tmp_path / "backend", tmp_path)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = pulumi_environment(tmp_path / "backend", tmp_path)["PATH"]
    assert shutil.which("pulumi", path=path) == str(tmp_path / "pulumi")


def test_a_proxy_of_the_shell_is_not_used_for_the_sandbox() -> None:
    """If the shell has a proxy, NO_PROXY gets the addresses of all clusters of the sandbox. What
    is in it stays.
    """
    assert past_proxy({"NO_PROXY": "intranet.example"}) == {}
    for name in ("https_proxy", "HTTPS_PROXY"):
        given = {name: "http://proxy.example:3128", "NO_PROXY": "intranet.example"}
        made = past_proxy(given)
        assert set(made) == {"NO_PROXY", "no_proxy"}
        assert made["NO_PROXY"] == made["no_proxy"] == "intranet.example,198.18.0.0/15"
        bypasses = requests.utils.should_bypass_proxies
        assert bypasses("https://198.19.255.2:6443", no_proxy=made["NO_PROXY"])
        assert not bypasses("https://192.0.2.1", no_proxy=made["NO_PROXY"])
