"""Which bundles the settings accept, and with which messages they refuse others."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.airgap.__main__ import main
from infra.airgap.manifest import read_manifest
from infra.kinds import KINDS
from infra.settings import Devices, PlatformForRuns, RunSettings, Settings, parse_settings
from tests.unit.airgap.stocked import K3S, OPERATOR_IMAGES, stock
from tests.unit.stacks import raw_settings


def settings(folder: Path, **changes: Any) -> Settings:
    """Return the settings of the stack `dev` with this bundle."""
    return parse_settings(raw_settings("dev", {"bundle": str(folder), **changes}), (), "dev", KINDS)


def run_of(stack: Settings) -> RunSettings:
    """Return the settings of the run, which must exist."""
    assert stack.run is not None
    return stack.run


def refusal(folder: Path, **changes: Any) -> str:
    """Return the error with which this bundle is refused."""
    with pytest.raises(pulumi.RunError) as failure:
        settings(folder, **changes)
    return str(failure.value)


def test_bundle_of_the_same_settings_is_taken(tmp_path: Path) -> None:
    """A bundle that was packed for the same settings is accepted, and the run takes its text from
    it.
    """
    folder = stock(tmp_path)
    stack = settings(folder)
    bundle = stack.own_platform.bundle
    assert bundle is not None
    assert len(bundle.images) == 1 + len(OPERATOR_IMAGES)
    run = run_of(stack)
    assert run.config.dataset.url is None
    assert run.dataset_file is not None
    assert run.dataset_file.path.read_text() == "text\n"
    assert run.bpe_file is None
    again = settings(folder, bundleSha256=read_manifest(folder).sha256)
    assert again.own_platform.bundle == bundle


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k3sVersion": "v1.34.3+k3s1"}, f"k3s v1.34.3+k3s1 (k3sVersion): it holds {K3S}"),
        (
            {"gpuOperatorVersion": "v26.7.0"},
            "gpu-operator-chart v26.7.0 (gpuOperatorVersion): it holds v26.3.3",
        ),
        ({"torchIndexUrl": ""}, "(imageBase, torchIndexUrl or trainer/requirements.txt): it holds"),
        (
            {"datasetUrl": "https://a.example/b", "datasetSha256": "1" * 64},
            f"dataset {'1' * 64} (datasetSha256): it holds",
        ),
        ({"k3sSha256": "2" * 64}, "k3s/k3s: sha256 is"),
        ({"k3sInstallerSha256": "2" * 64}, "k3sInstallerSha256 says 2222"),
        ({"gpuOperatorDriver": True}, "gpuOperatorDriver must be false"),
        ({"bundleSha256": "3" * 64}, f"not {'3' * 64} as expected"),
    ],
)
def test_bundle_of_other_settings_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """A bundle that was packed for other settings is refused, and the error names the setting that
    differs.
    """
    said = refusal(stock(tmp_path), **changes)
    assert words in said
    assert "bundle: '" in said


@pytest.mark.parametrize("purpose", ["k3s-images", "trainer-image", "dataset"])
def test_bundle_that_lacks_a_purpose_is_refused(purpose: str, tmp_path: Path) -> None:
    """A bundle without the files for something that the stack needs is refused."""
    said = refusal(stock(tmp_path, without=frozenset({purpose})))
    assert f"{purpose} " in said
    assert "it holds none" in said


def test_bundle_without_the_ranks_is_refused_for_gpt2_alone(tmp_path: Path) -> None:
    """A bundle without the merge table of GPT-2's tokenizer is refused only if the run uses this
    tokenizer.
    """
    folder = stock(tmp_path, without=frozenset({"tokenizer"}))
    assert run_of(settings(folder)).bpe_file is None
    assert "tokenizer gpt2 (datasetTokenizer): it holds none" in refusal(
        folder, datasetTokenizer="gpt2"
    )


def test_run_on_another_platform_refuses_a_bundle_without_its_text(tmp_path: Path) -> None:
    """A run on another stack's platform refuses a bundle without its text or merge table. Otherwise
    its pods would try to download them without a network.
    """
    folder = stock(tmp_path, without=frozenset({"tokenizer"}))
    changes = {"bundle": str(folder), "datasetTokenizer": "gpt2", "datasetSha256": "4" * 64}
    platform = PlatformForRuns(Devices("gpu", 3))
    with pytest.raises(pulumi.RunError) as failure:
        parse_settings(raw_settings("multipod", changes), (), "multipod", KINDS, platform)
    said = str(failure.value)
    assert f"dataset {'4' * 64} (datasetSha256): it holds" in said
    assert "tokenizer gpt2 (datasetTokenizer): it holds none" in said
    assert "k3s" not in said
    raw = raw_settings("multipod", {"bundle": str(folder)})
    run = run_of(parse_settings(raw, (), "multipod", KINDS, platform))
    assert run.dataset_file is not None
    assert run.dataset_file.path.parent == folder / "dataset"


def test_bundle_without_an_image_of_the_operator_is_refused(tmp_path: Path) -> None:
    folder = stock(tmp_path, without=frozenset({"gpu-operator-image"}))
    said = refusal(folder)
    assert f"it lacks the operator's image {OPERATOR_IMAGES[0]}" in said


def test_what_was_left_out_on_purpose_is_taken_from_the_network(tmp_path: Path) -> None:
    """What was left out of the bundle on purpose is not missed, and is taken from the network."""
    purposes = frozenset({"gpu-operator-image", "dataset", "trainer-image"})
    parts = ("dataset", "gpu-operator-images", "trainer-image")
    stack = settings(stock(tmp_path, without=purposes, left_out=parts))
    assert run_of(stack).config.dataset.url is not None
    assert run_of(stack).dataset_file is None


def test_several_files_beside_a_bundle_are_refused(tmp_path: Path) -> None:
    """A data set of several files is refused with a bundle, unless the data set was left out of it.
    No bundle contains such files, so a pod would try to download them without a network.
    """
    files = [{"url": f"https://a.example/{n}", "sha256": str(n) * 64} for n in (1, 2)]
    changes = {"datasetFiles": files, "datasetUrl": "", "datasetSha256": ""}
    said = refusal(stock(tmp_path), **changes)
    assert f"bundle: '{tmp_path}' cannot be used: the data set has 2 files" in said
    assert "OPTIONS='--without dataset'" in said
    (tmp_path / "other").mkdir()
    left_out = stock(tmp_path / "other", without=frozenset({"dataset"}), left_out=("dataset",))
    assert len(run_of(settings(left_out, **changes)).config.dataset.files) == 2


def test_missing_and_cut_off_files_are_named(tmp_path: Path) -> None:
    folder = stock(tmp_path)
    (folder / "k3s/k3s").unlink()
    assert "it is not complete (k3s/k3s: No such file or directory)" in refusal(folder)
    (folder / "k3s/k3s").write_text("short")
    assert "k3s/k3s: 5 bytes, not 8" in refusal(folder)
    assert "is not a complete bundle" in refusal(folder / "k3s")


def test_chart_is_not_read_before_it_is_checked(tmp_path: Path) -> None:
    """The checksum of the chart is checked before the chart is read."""
    folder = stock(tmp_path)
    (chart,) = (folder / "charts").iterdir()
    chart.write_bytes(bytes(chart.stat().st_size))
    assert "charts/gpu-operator-v26.3.3.tgz: sha256 is" in refusal(folder)


def test_file_of_ones_own_goes_before_the_bundles(tmp_path: Path) -> None:
    """The setting `datasetFile` is used instead of the bundle's text."""
    folder = stock(tmp_path / "bundle")
    own = tmp_path / "own.txt"
    own.write_text("mine\n")
    file = run_of(settings(folder, datasetFile=str(own))).dataset_file
    assert file is not None
    assert file.path == own


def test_a_flipped_bit_in_any_file_is_found_and_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single wrong bit in any file of the bundle is found, and only this file is named."""
    folder = stock(tmp_path)
    for entry in read_manifest(folder).files:
        good = (folder / entry.name).read_bytes()
        (folder / entry.name).write_bytes(bytes([good[0] ^ 1]) + good[1:])
        assert main(["verify", str(folder)]) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert said.startswith(f"bundle: {entry.name}: sha256 is ")
        assert said.count("sha256 is") == 1
        (folder / entry.name).write_bytes(good)
    assert main(["verify", str(folder)]) == 0
