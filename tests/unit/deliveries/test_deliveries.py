"""What holds for each delivery of the image, and the delivery `import`."""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infra.deliveries import DELIVERIES
from infra.deliveries.command import project_path
from infra.deliveries.import_ import ImportOptions, ensure_command, remove_command
from infra.deliveries.kind import DeliveryRequest, NodeTarget, Pull
from infra.deliveries.mirror import MirrorOptions, pull_command
from infra.deliveries.registry import RegistryOptions, push_command
from infra.image.__main__ import main as run_image_program
from infra.image.plan import VARIABLE, plan_image
from infra.image.program_plan import plan_program_image
from infra.registry import OptionError

PROJECT = Path(__file__).parents[3]


def request(minutes: int = 60, layout: Path | None = None, own: str = "") -> DeliveryRequest:
    """Return a request for the trainer's image; `own` are certificates, `minutes` an option."""
    plan = plan_image(
        PROJECT, "localhost/disttrain/trainer", "base:1", "https://index.example/cu118"
    )
    return DeliveryRequest(
        plan=plan,
        bundled_layout=layout,
        ctr="no-such-ctr",
        node=NodeTarget(access='{"sudo_password": "sekret"}'),
        authorities=own,
        namespace="trains",
        options=ImportOptions(minutes),
    )


def test_import_is_the_default_delivery() -> None:
    assert next(iter(DELIVERIES)) == "import"
    assert DELIVERIES["import"].pull(request()) == Pull("IfNotPresent", ())


def test_commands_name_no_path_of_this_checkout(tmp_path: Path) -> None:
    """The commands name no path of this checkout, so another checkout or virtual environment does
    not change the inputs.
    """
    bundled = PROJECT / "build" / "bundle" / "layout"
    for text in (ensure_command(request(layout=bundled)), remove_command(request())):
        assert not [word for word in shlex.split(text) if word.startswith("/")]
        assert str(PROJECT) not in text
        assert shlex.split(text)[:3] == [".venv/bin/python", "-m", "infra.image"]
    assert project_path(bundled) == "build/bundle/layout"
    assert project_path(tmp_path) == str(tmp_path)  # outside the checkout there is no other name


def test_recorded_delete_works_from_another_checkout(tmp_path: Path) -> None:
    """The delete command in the state works from another checkout, because it names the Python
    there.
    """
    other = tmp_path / "checkout"
    shutil.copytree(
        PROJECT / "infra", other / "infra", ignore=shutil.ignore_patterns("__pycache__")
    )
    (other / ".venv").symlink_to((PROJECT / ".venv-dev").resolve())
    done = subprocess.run(
        ["sh", "-c", remove_command(request())],
        cwd=other,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"removed": 0}


def test_ensure_gets_the_index_and_the_certificates_and_no_secret() -> None:
    """The command that builds the image gets the package index, reads certificates from standard
    input, and has no secret in it.
    """
    words = shlex.split(ensure_command(request(own="PEM")))
    assert "--torch-index-url=https://index.example/cu118" in words
    assert words[words.index("--authorities") + 1] == "-"
    assert "--authorities" not in ensure_command(request())
    assert "sekret" not in repr(request()) + " ".join(words)


def test_import_and_removal_name_the_platforms_namespace() -> None:
    """Import and removal name the platform's namespace. By it, containerd knows which platform
    wants the image and which one no longer does.
    """
    for text in (ensure_command(request()), remove_command(request())):
        words = shlex.split(text)
        assert words[words.index("--pods-of") + 1] == "trains"


def test_a_time_may_be_none_and_not_negative() -> None:
    """`keepUnusedMinutes` may be 0 but not negative."""
    assert ImportOptions(0).keepUnusedMinutes == 0
    with pytest.raises(OptionError, match="keepUnusedMinutes: it is a time"):
        request(-1)


def test_each_delivery_makes_a_program_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each delivery builds the image of a user's program from its folder, and refuses it if the
    name is not the planned one.
    """
    (tmp_path / "Dockerfile").write_text("FROM mine:1")
    plan = plan_program_image(tmp_path, "images.example/team/trainer")
    asked = replace(request(), plan=plan)
    commands = {
        "import": ensure_command(asked),
        "registry": push_command(replace(asked, options=RegistryOptions())),
        "mirror": pull_command(replace(asked, options=MirrorOptions())),
    }
    assert commands.keys() == DELIVERIES.keys()
    for command in commands.values():
        words = shlex.split(command)
        assert words[words.index("--program") + 1] == str(tmp_path)
        assert words[words.index("--repository") + 1] == plan.repository
        assert "--base-image" not in words
        monkeypatch.setenv(VARIABLE, "another:1-1")
        assert run_image_program(words[3:]) == 1
        assert f"would make {plan.reference}." in capsys.readouterr().out
