"""A run can be fetched from the mirror that its trainer has filled, when its volume is gone."""

import json
from pathlib import Path

import pytest

from infra.kube.errors import TaskError
from tests.cli.fetch.local_pod import add_checkpoint, contents, make_run, small_ranges
from tests.cli.fetch.mirrored import fetch, mirror, mirrored_contents
from tests.gate import Gate
from trainer.mirror.remote_folder import DamagedError, RemoteFolder

MANY_BYTES = 3_000_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run with one checkpoint, step 100."""
    return make_run(tmp_path / "volume" / "words")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a mirror that is a folder."""
    return f"file://{tmp_path}/mirror"


def damage(url: str, step: int) -> None:
    """Change one byte of the mirror's copy of a checkpoint."""
    folder = Path(url.removeprefix("file://")) / "words" / "checkpoints" / f"step-{step:08d}"
    content = bytearray((folder / "model-00000.bin").read_bytes())
    content[7] ^= 1
    (folder / "model-00000.bin").write_bytes(content)


def test_checkpoint_comes_with_settings_and_metrics(run: Path, url: str, tmp_path: Path) -> None:
    """`fetch` brings a run from its mirror with its settings, metrics and tokenizer, and a second
    `fetch` sends nothing. Without the tokenizer the run could not be sampled.
    """
    (run / "tokenizer.json").write_text("{}")
    mirror(run, url)
    brought = fetch(url, tmp_path / "here")
    assert brought.checkpoint is not None
    assert brought.checkpoint.step == 100
    assert contents(tmp_path / "here") == mirrored_contents(run)
    assert fetch(url, tmp_path / "here").sent == 0  # what is here is not sent again


@pytest.mark.parametrize(("choice", "expected"), [("best", 100), ("200", 200), ("none", None)])
def test_choice_is_taken_from_the_mirror(
    tmp_path: Path, url: str, choice: str, expected: int | None
) -> None:
    """The choice of a checkpoint means those in the mirror. The metrics come with each choice."""
    run = make_run(tmp_path / "volume" / "words", steps=())
    for step, val_loss in ((100, 1.5), (200, 2.0), (300, 2.5)):
        add_checkpoint(run, step, val_loss=val_loss)
        mirror(run, url)
    brought = fetch(url, tmp_path / "here", choice)
    assert (brought.checkpoint and brought.checkpoint.step) == expected
    assert (tmp_path / "here" / "metrics.jsonl").exists()


def test_damaged_copy_is_passed_over_until_none_is_left(
    run: Path, url: str, tmp_path: Path
) -> None:
    """A damaged copy in the mirror is skipped with the reason, and without any other copy `fetch`
    refuses.
    """
    mirror(run, url)
    add_checkpoint(run, 200)
    mirror(run, url)
    damage(url, 200)
    said: list[str] = []
    brought = fetch(url, tmp_path / "here", say=said.append)
    assert brought.checkpoint is not None
    assert brought.checkpoint.step == 100
    reason = "model-00000.bin does not have the sha256 of manifest.json"
    assert f"step-00000200 is damaged in the mirror {url}: {reason}" in said
    assert [path.name for path in (tmp_path / "here/checkpoints").iterdir()] == ["step-00000100"]
    damage(url, 100)
    with pytest.raises(
        ValueError, match=r"latest cannot be fetched: the mirror file://\S+ has no verif"
    ):
        fetch(url, tmp_path / "none")


@pytest.mark.parametrize("name", ["model-00000.bin", "state.json", "manifest.json"])
def test_object_that_was_changed_in_the_store_is_passed_over(
    run: Path, bucket: str, objects: Path, tmp_path: Path, name: str
) -> None:
    """A checkpoint with an object that was changed in the store is skipped. Some stores keep
    checksums of their own and refuse to give such an object.
    """
    mirror(run, f"s3://{bucket}")
    add_checkpoint(run, 200)
    mirror(run, f"s3://{bucket}")
    with (objects / "words/checkpoints/step-00000200" / name).open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    brought = fetch(f"s3://{bucket}", tmp_path / "here")
    assert brought.checkpoint is not None
    assert brought.checkpoint.step == 100


@pytest.mark.parametrize("refused", ["read", "read_part"])
def test_file_that_the_store_calls_damaged_is_never_taken(
    run: Path, url: str, tmp_path: Path, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file that the store itself calls damaged is taken, in whole or in part."""
    mirror(run, url)
    add_checkpoint(run, 200)
    mirror(run, url)
    whole = getattr(RemoteFolder, refused)

    def refuse(folder: RemoteFolder, name: str, *rest: int) -> bytes | None:
        if "step-00000200" in name or name == "metrics.jsonl":
            raise DamagedError(f"{name} was changed in the store")
        return whole(folder, name, *rest)

    monkeypatch.setattr(RemoteFolder, refused, refuse)
    brought = fetch(url, tmp_path / "here")
    assert brought.checkpoint is not None
    assert brought.checkpoint.step == 100
    assert not (tmp_path / "here/metrics.jsonl").exists()


def test_copy_that_is_cut_short_is_no_checkpoint(run: Path, url: str, tmp_path: Path) -> None:
    """A copy with a file that is too short or missing is refused. The manifest alone would still
    say that the copy is whole.
    """
    mirror(run, url)
    folder = Path(url.removeprefix("file://")) / "words/checkpoints/step-00000100"
    content = (folder / "model-00000.bin").read_bytes()
    (folder / "model-00000.bin").write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"model-00000.bin has 99999 bytes, manifest.json says"):
        fetch(url, tmp_path / "here")
    (folder / "model-00000.bin").unlink()
    with pytest.raises(ValueError, match=r"model-00000.bin is missing"):
        fetch(url, tmp_path / "here")


def test_manifest_of_a_stranger_reaches_no_other_file(run: Path, url: str, tmp_path: Path) -> None:
    """A copy whose manifest names a file outside of the checkpoint is refused."""
    mirror(run, url)
    path = Path(url.removeprefix("file://")) / "words/checkpoints/step-00000100/manifest.json"
    content = json.loads(path.read_text())
    content["files"]["../../elsewhere"] = content["files"].pop("model-00000.bin")
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="elsewhere"):
        fetch(url, tmp_path / "here")


def test_half_a_line_of_metrics_is_left_out(run: Path, url: str, tmp_path: Path) -> None:
    """Metrics that end within a line come without that line."""
    whole = (run / "metrics.jsonl").read_bytes()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    mirror(run, url)
    fetch(url, tmp_path / "here")
    assert (tmp_path / "here" / "metrics.jsonl").read_bytes() == whole


def test_run_that_is_not_mirrored_is_answered_with_the_others(
    run: Path, url: str, tmp_path: Path
) -> None:
    """A run that is not in the mirror is refused with the names of those that are."""
    mirror(run, url)
    with pytest.raises(
        ValueError, match=r"'other' is not in the mirror file://\S+. .* there: words"
    ):
        fetch(url, tmp_path / "here", run="other")


def test_store_that_breaks_connections_costs_no_byte(
    run: Path, bucket: str, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` brings every byte although the store's connections are cut."""
    small_ranges(monkeypatch)
    monkeypatch.setattr("cli.fetch.mirror_source.BLOCK_BYTES", 100_000)
    add_checkpoint(run, 200, MANY_BYTES)
    mirror(run, f"s3://{bucket}/some/prefix")
    gate.cuts_down = [MANY_BYTES // 8, MANY_BYTES // 2]
    fetch(f"s3://{bucket}/some/prefix", tmp_path / "here")
    assert gate.cuts_down == []
    here, there = contents(tmp_path / "here"), mirrored_contents(run)
    assert here == {n: each for n, each in there.items() if "step-00000100" not in n}


def test_fetch_goes_on_where_the_store_went_away(
    run: Path, bucket: str, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `fetch` that gave up because the store went away is continued by the same command, which
    asks only for what has not arrived.
    """
    small_ranges(monkeypatch)
    monkeypatch.setattr("cli.fetch.mirror_source.BLOCK_BYTES", 100_000)
    monkeypatch.setattr("cli.fetch.transfer.MOST_CUTS", 0)
    add_checkpoint(run, 200, MANY_BYTES)
    mirror(run, f"s3://{bucket}")
    arrived = 0

    def count(size: int) -> None:
        nonlocal arrived
        arrived += size
        if arrived > MANY_BYTES // 2:
            gate.close()

    with monkeypatch.context() as patch:
        patch.setattr("cli.fetch.progress.Progress.add", lambda _self, size: count(size))
        with pytest.raises(TaskError, match="the same command continues there"):
            fetch(f"s3://{bucket}", tmp_path / "here")
    gate.open()
    brought = fetch(f"s3://{bucket}", tmp_path / "here")
    assert 0 < brought.sent <= brought.size - MANY_BYTES // 2
    assert brought.checkpoint is not None
    assert brought.checkpoint.step == 200


FAULTS = {
    "no such bucket": "the store has no such bucket",
    "no credentials": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    "wrong password": "the store refuses the credentials",
    "nobody answers": "the store does not answer as it should",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_store_that_gives_nothing_says_what_to_do(
    bucket: str, gate: Gate, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot be read is refused with its address and what to do. The message shows no
    secret key.
    """
    url = f"s3://{bucket}"
    if fault == "no such bucket":
        url = "s3://no-such-bucket"
    elif fault == "no credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
    elif fault == "wrong password":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    else:
        gate.close()
    with pytest.raises(ValueError, match=FAULTS[fault]) as caught:
        fetch(url, tmp_path / "here")
    assert url in str(caught.value)
    assert "hunter2" not in str(caught.value)
