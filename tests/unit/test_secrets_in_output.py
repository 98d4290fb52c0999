"""No program prints a secret, whatever makes it fail. Pulumi keeps in its state what programs
print.

Each case gives a marked secret to one program on the way that a user's settings or environment
take, makes it fail there, and looks for the mark in all that it prints. The real curl, pip and
Kubernetes client are used. When they cannot read a proxy's address, they repeat it with its
password. What the program hands to the engine is in tests/unit/program/test_secrets.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pulumi
import pytest
import yaml

from infra.airgap.download import DownloadError, download
from infra.kinds import KINDS
from infra.node.shell_program import script_text
from infra.settings import parse_settings
from tests.unit.stacks import PROJECT, raw_settings

MARK = "open-sesame"
PROXY = f"http://me:{MARK}@127.0.0.1:99999"  # no port has this number
NO_YAML = f"clusters: []\nusers:\n- user: {{token: {MARK}\n  other: *{MARK}\n"
Case: TypeAlias = Callable[[Path], tuple[str, str]]
"""Returns all that was printed, and words of the failure that was meant to happen."""


def printed(
    words: Sequence[str], text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command from the folder of the checkout. What it prints is in `stdout` of the result,
    with its errors.
    """
    return subprocess.run(
        words,
        input=text,
        cwd=PROJECT,
        env={**os.environ, "no_proxy": "", "NO_PROXY": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def program(*words: str, text: str = "", **environment: str) -> str:
    """Run a module that has to fail; return all that it prints."""
    done = printed([sys.executable, "-m", *words], text, **environment)
    assert done.returncode != 0, done.stdout
    return done.stdout


def kube(**access: str) -> str:
    job = {"namespace": "n", "names": ["n"], "owner": "o", **access}
    return program("infra.kube", "claim-namespace", "create", text=json.dumps(job))


def kubeconfig(cluster: dict[str, str], user: dict[str, object]) -> str:
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [context],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    )


def kubeconfig_of_a_stack(_: Path) -> tuple[str, str]:
    return kube(kubeconfig=NO_YAML), "is no YAML (line 4"


def kubeconfig_of_the_settings(folder: Path) -> tuple[str, str]:
    (folder / "kubeconfig").write_text(NO_YAML)
    changes = {"cluster": "existing", "kubeconfig": str(folder / "kubeconfig")}
    with pytest.raises(pulumi.RunError) as failure:
        parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    return str(failure.value), "it is no YAML (line 4"


def job_that_is_cut_off(_: Path) -> tuple[str, str]:
    cut = f'{{"kubeconfig": "token: {MARK}'
    return program("infra.kube", "claim-namespace", "create", text=cut), "error: "


def proxy_of_a_kubeconfig(_: Path) -> tuple[str, str]:
    server = {"server": "https://198.51.100.1:6443", "proxy-url": PROXY}
    return kube(kubeconfig=kubeconfig(server, {"token": MARK})), "127.0.0.1:99999"


def plan_of_the_doctor(_: Path) -> tuple[str, str]:
    cut = f'{{"sudo_password": "{MARK}", "expect": {{"https_proxy": "{PROXY}"'
    return program("cli", "doctor", "--plan", "-", text=cut), "is no plan of this program"


def k3s_download(folder: Path) -> tuple[str, str]:
    text = script_text("lib/k3s-download.sh").replace(
        "readonly SCRATCH=/var/lib/rancher/disttrain-scratch", f"SCRATCH='{folder}'"
    )
    text = text.replace("--retry 3", "--retry 0")  # it would only wait longer
    fail = 'fail() { echo "$*" >&2; exit 1; }\n'
    done = printed(
        ["sh", "-s"],
        f'{fail}{text}\ndownload https://k3s.example/k3s "$SCRATCH/k3s"',
        **{"https_proxy": PROXY, "HTTPS_PROXY": PROXY},
    )
    return done.stdout, "[secret]@127.0.0.1:99999"


def stack_file(folder: Path) -> Path:
    """Write the file of a stack whose bundle has wheels and an image; return its path."""
    text, config = folder / "text", folder / "kubeconfig"
    text.write_text("text\n")
    config.write_text(kubeconfig({"server": "https://198.51.100.1:6443"}, {}))
    settings = {
        "cluster": "existing",
        "kubeconfig": str(config),
        "accelerator": "cpu",
        "gpusPerPod": 1,
        "datasetFile": str(text),
        "imageBuilder": "buildah",
    }
    file = folder / "Pulumi.marked.yaml"
    file.write_text(yaml.safe_dump({"config": {f"disttrain:{k}": v for k, v in settings.items()}}))
    return file


def bundle(folder: Path, *without: str, **environment: str) -> str:
    words = ["infra.airgap", "pack", "--config-file", str(stack_file(folder))]
    words += ["--output", str(folder / "bundle"), "--cache", str(folder / "cache")]
    words += [word for part in without for word in ("--without", part)]
    return program(*words, **environment)


def wheels_of_a_bundle(folder: Path) -> tuple[str, str]:
    said = bundle(folder, "trainer-image", "pulumi", PIP_PROXY=PROXY, PIP_NO_CACHE_DIR="1")
    return said, "pip download failed"


def image_of_a_bundle(folder: Path) -> tuple[str, str]:
    """A stand-in for buildah prints the proxy and the package index, as uv does in a build if it
    cannot read the proxy's address.
    """
    builder = folder / "bin/buildah"
    builder.parent.mkdir()
    builder.write_text(
        '#!/bin/sh\n[ "$1" != info ] || exit 0\n'
        'echo "error: invalid proxy address $HTTPS_PROXY, index $PIP_INDEX_URL"; exit 1\n'
    )
    builder.chmod(0o755)
    environment = {
        "PATH": f"{builder.parent}:{os.environ['PATH']}",
        "HTTPS_PROXY": PROXY,
        "PIP_INDEX_URL": f"https://me:{MARK}@index.example/simple",
    }
    return bundle(folder, "wheels", "pulumi", **environment), "invalid proxy address"


def download_with_a_password(folder: Path) -> tuple[str, str]:
    with pytest.raises(DownloadError) as failure:
        download(f"https://me:{MARK}@index.example/chart?token={MARK}", folder / "chart")
    return str(failure.value), "index.example/chart: nonnumeric port"


CASES: tuple[Case, ...] = (
    kubeconfig_of_a_stack,
    kubeconfig_of_the_settings,
    job_that_is_cut_off,
    proxy_of_a_kubeconfig,
    plan_of_the_doctor,
    k3s_download,
    wheels_of_a_bundle,
    image_of_a_bundle,
    download_with_a_password,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_failure_prints_no_secret(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.airgap.download.time.sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    said, meant = case(tmp_path)
    assert meant in " ".join(said.split())
    assert MARK not in said


@pytest.mark.parametrize("key", ["httpProxy", "httpsProxy"])
def test_a_proxy_whose_port_cannot_be_is_refused_without_its_password(key: str) -> None:
    with pytest.raises(pulumi.RunError) as failure:
        parse_settings(raw_settings("dev", {key: PROXY}), (key,), "dev", KINDS)
    assert f"{key}: [secret] cannot be used" in str(failure.value)
    assert MARK not in str(failure.value)
