"""The data set and the run's configuration that follow from the settings."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.settings.file_checksum import SETTLED_SECONDS, file_checksum
from tests.unit.settings.reading import refusal, run

TEXT = b"my own text"
CHECKSUM = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Return a file with a text of the user."""
    file = tmp_path / "mine.txt"
    file.write_bytes(TEXT)
    return file


def test_an_own_text_brings_its_own_checksum(text: Path) -> None:
    """A `datasetFile` gets its checksum, and a place on the volume that is named after it."""
    settings = run({"datasetFile": str(text)})
    dataset = settings.config.dataset
    assert dataset.sha256 == CHECKSUM
    assert dataset.file == f"/data/datasets/.incoming/{CHECKSUM}"
    assert (dataset.url, dataset.size_bytes) == (None, None)
    assert settings.dataset_file is not None
    assert (settings.dataset_file.path, settings.dataset_file.size) == (text, len(TEXT))


def test_a_given_checksum_is_compared_at_once(text: Path) -> None:
    """A `datasetSha256` of another text than that of `datasetFile` is refused before anything is
    made. Otherwise the Job that prepares the data set would find it, after the text was copied to
    the volume.
    """
    given = {"datasetFile": str(text), "datasetSha256": "0" * 64}
    (line,) = [line for line in refusal(given).splitlines() if line.startswith("  - ")]
    assert line == (
        f"  - datasetSha256: '{'0' * 64}' cannot be used: datasetFile is {text}, and its sha256 is "
        f"{CHECKSUM}. Set datasetFile to the text that was meant, or remove datasetSha256 to take "
        "this one: `pulumi config rm datasetSha256`."
    )
    assert run({**given, "datasetSha256": CHECKSUM}).config.dataset.sha256 == CHECKSUM


def test_run_overrides_reach_the_run() -> None:
    """The setting `run` changes single values of the run's configuration, and the preset's other
    values stay.
    """
    overrides = {"seed": 7, "model": {"n_layer": 2}, "train": {"learning_rate": "3e-4"}}
    config = run({"run": overrides}).config
    assert (config.seed, config.model.n_layer, config.train.learning_rate) == (7, 2, 3e-4)
    assert config.model.n_embd == 384  # the value of the preset


def test_a_share_for_validation_replaces_the_tokens_of_the_preset() -> None:
    """`val_share` counts although the preset says how many tokens are for validation."""
    preset = {"preset": "fineweb-edu-124m", "datasetTimeoutSeconds": 10000}
    assert run(preset).config.dataset.val_tokens
    dataset = run({**preset, "datasetOptions": {"val_share": 0.01}}).config.dataset
    assert (dataset.val_share, dataset.val_tokens) == (0.01, None)


# --- the checksum of a file, computed once ---


class Counted:
    """Computes checksums and counts how often. `before` is called with the file before it is
    read.
    """

    def __init__(self, before: Callable[[Path], object] = lambda path: None) -> None:
        self.calls = 0
        self._before = before

    def __call__(self, path: Path) -> str:
        self.calls += 1
        self._before(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock ahead, so that a file that was written just now counts as settled."""
    import time

    now_seconds = time.time() + 10 * SETTLED_SECONDS
    monkeypatch.setattr("infra.settings.file_checksum.time.time", lambda: now_seconds)


@pytest.mark.usefixtures("later")
def test_a_file_is_read_once_for_preview_and_update(text: Path, tmp_path: Path) -> None:
    """The checksum of a file is computed only once for a preview and an update."""
    compute = Counted()
    answers = {file_checksum(text, tmp_path / "cache", compute) for _ in range(3)}
    assert (answers, compute.calls) == ({CHECKSUM}, 1)


@pytest.mark.usefixtures("later")
def test_a_changed_file_is_read_again(text: Path, tmp_path: Path) -> None:
    """The checksum is computed again if the file has changed, even if it has the same size or was
    replaced by another one.
    """
    compute = Counted()
    assert file_checksum(text, tmp_path / "cache", compute) == CHECKSUM
    text.write_bytes(TEXT.upper())  # the same size
    assert file_checksum(text, tmp_path / "cache", compute) != CHECKSUM
    other = tmp_path / "other.txt"
    other.write_bytes(TEXT.upper())
    other.replace(text)
    file_checksum(text, tmp_path / "cache", compute)
    assert compute.calls == 3


def test_a_file_changed_just_now_is_not_kept(text: Path, tmp_path: Path) -> None:
    """The checksum of a file that was written just now is not kept, because another change in the
    same moment would not be noticed.
    """
    compute = Counted()
    for _ in range(2):
        file_checksum(text, tmp_path / "cache", compute)
    assert compute.calls == 2


@pytest.mark.usefixtures("later")
def test_a_file_changed_while_read_is_not_kept(text: Path, tmp_path: Path) -> None:
    """The checksum of a file that changes while it is read is not kept."""
    compute = Counted(before=lambda path: path.write_bytes(b"longer than it was"))
    file_checksum(text, tmp_path / "cache", compute)
    file_checksum(text, tmp_path / "cache", compute)
    assert compute.calls == 2


@pytest.mark.usefixtures("later")
def test_a_damaged_record_is_ignored(text: Path, tmp_path: Path) -> None:
    """A damaged record of a checksum is ignored, and the checksum is computed again."""
    folder = tmp_path / "cache"
    file_checksum(text, folder)
    (record,) = folder.iterdir()
    for damage in ("", "[]", "{", '{"state": 1}'):
        record.write_text(damage)
        assert file_checksum(text, folder) == CHECKSUM


# --- several files, other formats ---

FILES = [
    {"url": "https://host/a.parquet", "sha256": "0" * 64, "size_bytes": 10},
    {"url": "https://host/b.parquet", "sha256": "1" * 64},
]


def test_several_addresses_replace_the_presets_text() -> None:
    dataset = run({"datasetFiles": FILES, "datasetTokenizer": "gpt2"}).config.dataset
    assert [file.url for file in dataset.files] == [file["url"] for file in FILES]
    assert (dataset.url, dataset.sha256, dataset.tokenizer) == (None, None, "gpt2")


def test_options_say_what_the_files_hold() -> None:
    """`datasetOptions` reach the run's configuration."""
    options = {"text_field": "body", "val_tokens": 5000}
    dataset = run({"datasetFiles": FILES, "datasetOptions": options}).config.dataset
    assert (dataset.text_field, dataset.val_tokens) == ("body", 5000)


def test_a_file_keeps_the_ending_that_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"x")
    file = run({"datasetFile": str(tmp_path / "a.jsonl.gz")}).config.dataset.file
    assert file is not None
    assert file.endswith(".jsonl.gz")


def test_a_tokenizer_of_this_machine_goes_to_the_volume(tmp_path: Path) -> None:
    """A `datasetTokenizer` that is a file of this machine is read by the pods from the volume."""
    (tmp_path / "tokenizer.json").write_text("{}")
    settings = run({"datasetTokenizer": str(tmp_path / "tokenizer.json")})
    assert settings.tokenizer_file is not None
    assert settings.config.dataset.tokenizer == settings.tokenizer_file.path_in_pods
    assert settings.tokenizer_file.path_in_pods.endswith(".json")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"datasetFiles": [{"url": "https://h/a"}]}, "datasetFiles[0].sha256"),
        ({"datasetFiles": ["https://h/a"]}, "datasetFiles[0]: "),
        (
            {"datasetFiles": [{"url": "https://u:pass@[::1/a", "sha256": "0" * 64}]},
            "datasetFiles[0].url: 'https://[secret]@[::1/a' cannot be used: it is not an http(s)",
        ),
        (
            {"datasetFiles": [{"url": "https://u:pass@h/a", "sha256": "0" * 64}]},
            "be in plain text in a ConfigMap",
        ),
        ({"datasetFiles": FILES, "datasetUrl": "https://h/a"}, "datasetFiles is set too"),
        ({"datasetOptions": {"columns": "x"}}, "datasetOptions.columns"),
        ({"datasetOptions": {"val_share": 2}}, "datasetOptions.val_share: 2"),
        (
            {"preset": "fineweb-edu-124m"},
            "the data set has 28.5 GB to download and to turn into tokens",
        ),
        ({"preset": "gpt2-124m"}, "datasetUrl: not set"),
    ],
)
def test_mistakes_in_several_files_are_named(values: dict[str, object], words: str) -> None:
    text = refusal(values)
    assert words in text
    assert "pass@" not in text


def test_a_large_data_set_is_given_time() -> None:
    """A large data set is accepted if `datasetTimeoutSeconds` gives it enough time."""
    settings = run({"preset": "fineweb-edu-124m", "datasetTimeoutSeconds": 14400})
    assert len(settings.config.dataset.files) == 14
