"""What a process learns about the begin of its pod from files as the kubelet leaves them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from infra.names import RUN_CONFIG_PATH
from trainer.events.clock import process_age_seconds
from trainer.events.pod_begin import CONFIG_FOLDER, pod_begin


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a ConfigMap's folder, and a file as `/etc/hosts` of a container."""
    folder, hosts = tmp_path / "config", tmp_path / "hosts"
    (folder / "..2026_11_23_04_12_32.1073").mkdir(parents=True)
    (folder / "..data").symlink_to("..2026_11_23_04_12_32.1073")
    hosts.write_text("127.0.0.1 localhost\n")
    return folder, hosts


def set_times(files: tuple[Path, Path], volume: float, image: float) -> None:
    """Set the times at which the kubelet has made the volume and the container, in seconds since
    1970.
    """
    folder, hosts = files
    os.utime(folder / "..data", (volume, volume), follow_symlinks=False)
    os.utime(hosts, (image, image))


def test_image_and_container_are_told_by_the_files_times(files: tuple[Path, Path]) -> None:
    """The times for the image and for the container follow from the times of the files."""
    before = time.time()
    begun = before - process_age_seconds()
    set_times(files, begun - 5, begun - 2)
    found = pod_begin(*files)
    passed = time.time() - before
    assert found["image_seconds"] == pytest.approx(3, abs=0.001)
    # Clock ticks count as 10 ms; a busy machine may let time pass between two looks at a clock.
    assert abs(found["container_seconds"] - 2) <= 0.1 + passed
    assert found["pod"] == "2026_11_23_04_12_32.1073"
    assert found["age_seconds"] > 0


def test_outside_of_a_pod_the_age_of_the_process_is_known_alone(files: tuple[Path, Path]) -> None:
    """Without the files of a pod only the age of the process is known."""
    folder, hosts = files
    assert [*pod_begin(folder / "none", hosts)] == ["age_seconds"]
    assert [*pod_begin(folder, hosts / "none")] == ["age_seconds"]


@pytest.mark.parametrize(("volume", "image"), [(-2, -5), (-5, 1000)])
def test_times_that_cannot_be_are_not_used(
    files: tuple[Path, Path], volume: float, image: float
) -> None:
    """Times in an impossible order are not used. Another container may have written the file since,
    or the machine's clock was set.
    """
    begun = time.time() - process_age_seconds()
    set_times(files, begun + volume, begun + image)
    assert [*pod_begin(*files)] == ["age_seconds"]


def test_config_is_where_the_pods_have_it() -> None:
    """The folder that is looked at is the one where the pods have their configuration."""
    assert str(CONFIG_FOLDER) == str(Path(RUN_CONFIG_PATH).parent)
