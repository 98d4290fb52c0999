"""The table of `plan`: its bytes are those that real collectives move, and its sums are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sandbox.venvs import PROJECT, ensure_venv
from tests.trainer.bytes_probe import RANKS
from tests.trainer.plan_model import MODEL, VOCAB_SIZE
from trainer.__main__ import BROKEN_PIPE, main
from trainer.config import RunConfig, load_config, preset_path
from trainer.launch.exit_codes import ExitCode
from trainer.model.gpt import GPT
from trainer.plan import GRADIENT_BYTES, Shape, plan_row, sent_bytes, worlds
from trainer.plan_command import shape_of

CHECKOUT = Path(__file__).resolve().parents[2]


def moved(tmp_path: Path, *what: str) -> dict[str, int]:
    """Return how many bytes went through the collectives of rank 0, by kind."""
    probe = [sys.executable, "-m", "tests.trainer.bytes_probe"]
    ranks = [
        subprocess.Popen(
            [*probe, str(rank), str(tmp_path / "store"), *what],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS
    return json.loads(said[0].splitlines()[-1])


def tiny_shape() -> Shape:
    """Return the size of the tests' model."""
    with torch.device("meta"):
        model = GPT(MODEL, VOCAB_SIZE)
    blocks = sum(parameter.numel() for parameter in model.blocks.parameters())
    return Shape(sum(p.numel() for p in model.parameters()), blocks, model.flops_per_token())


@pytest.mark.parametrize(
    ("parallel", "dtype", "micro_steps", "reductions"),
    [
        ("ddp", "float32", 2, 1),
        ("ddp", "bfloat16", 1, 1),
        ("fsdp", "float32", 1, 1),
        ("fsdp", "bfloat16", 3, 1),
        ("fsdp", "bfloat16", 3, 3),
    ],
)
def test_bytes_are_those_that_collectives_move(
    tmp_path: Path, parallel: str, dtype: str, micro_steps: int, reductions: int
) -> None:
    """The bytes of the table are those of real collectives: a ring of N ranks sends (N - 1) / N of
    what is gathered or scattered, and an all-reduce twice that.
    """
    found = moved(tmp_path, parallel, dtype, str(micro_steps), str(reductions))
    others = (RANKS - 1) / RANKS
    rings = {"ddp": 2 * found["reduced"], "fsdp": found["gathered"] + found["reduced"]}
    reckoned = sent_bytes(tiny_shape(), parallel, dtype, RANKS, micro_steps, reductions)
    assert reckoned == others * rings[parallel] > 0


def config(**changes: object) -> RunConfig:
    """Return the configuration of `openwebtext-124m` with these changes."""
    given = [f"--{key.replace('__', '.')}={value}" for key, value in changes.items()]
    return load_config(preset_path("openwebtext-124m"), given)


def test_more_ranks_share_the_same_arithmetic() -> None:
    wanted = config()
    shape = shape_of(wanted, 50257)
    one, eight = (plan_row(wanted, shape, "bfloat16", ranks, 4e14) for ranks in (1, 8))
    assert one.sent_bytes == 0
    assert eight.hours == pytest.approx(one.hours / 8)
    assert eight.gpu_hours == pytest.approx(one.gpu_hours)
    tokens = wanted.train.global_batch_size * wanted.model.block_size
    assert one.compute_seconds == pytest.approx(tokens * shape.flops_per_token / 4e14)


def test_plan_counts_each_reduction_of_gradients() -> None:
    """With `train.reduce_each_micro_step`, each further micro-step of fsdp sends the gradients."""
    shape = tiny_shape()
    once, each = (
        plan_row(config(train__parallel="fsdp", **more), shape, "bfloat16", 2, 1e12)
        for more in ({}, {"train__reduce_each_micro_step": True})
    )
    assert each.micro_steps == once.micro_steps > 1
    more_bytes = (each.micro_steps - 1) * shape.parameters * GRADIENT_BYTES / 2
    assert each.sent_bytes - once.sent_bytes == pytest.approx(more_bytes)


def test_ranks_that_do_not_divide_the_batch_wait_for_others() -> None:
    """If the ranks do not divide the batch, the share of idle time is that of the ranks with fewer
    sequences.
    """
    row = plan_row(config(train__global_batch_size=10), Shape(1, 1, 1), "float32", 4, 1.0)
    assert row.idle_share == pytest.approx(1 - 10 / 12)


def test_worlds_double_up_to_the_last_one() -> None:
    assert [worlds(most) for most in (1, 2, 3, 8, 12)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4, 8],
        [1, 2, 4, 8, 12],
    ]


def test_command_shows_a_line_for_each_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "openwebtext-124m", "--ranks", "3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("124.4 million parameters; an update takes 491,520 tokens")
    assert [line.split()[0] for line in said[3:]] == ["ranks", "1", "2", "3"]
    assert "price" not in said[3]
    assert main(["plan", "--preset", "openwebtext-124m", "--price-per-gpu-hour", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[3].endswith("price")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--gpu", "A9"], "--gpu: 'A9' cannot be used: no peak of it is known for bfloat16"),
        (["--ranks", "0"], "--ranks: 0 cannot be used: each rank needs a sequence"),
        (["--ranks", "481"], "Give 1 to 480, or raise train.global_batch_size"),
        (["--mfu", "40"], "--mfu: 40.0 cannot be used: it is a share"),
        (["--peak-tflops", "0"], "--peak-tflops: 0.0 cannot be used: it is how many"),
        (["--peak-tflops", "nan"], "Give a number above 0"),
    ],
)
def test_option_that_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], given: list[str], words: str
) -> None:
    assert main(["plan", "--preset", "openwebtext-124m", *given]) != 0
    assert words in capsys.readouterr().err


def test_vocabulary_of_another_tokenizer_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The size of the vocabulary has to be given if the tokenizer does not tell it. With GPT-2's in
    its place, a model for characters would seem three times as large as it is.
    """
    words = ["plan", "--preset", "shakespeare-char"]
    assert main(words) == ExitCode.FATAL
    assert "--vocab-size is missing: with dataset.tokenizer 'char'" in capsys.readouterr().err
    assert main([*words, "--vocab-size", "65"]) == 0
    assert capsys.readouterr().out.startswith("10.7 million parameters;")


def test_python_without_torch_is_told_what_it_needs() -> None:
    """Without torch, as in the virtual environment in which `pulumi up` runs, the command says how
    to install it, without a traceback.
    """
    python = ensure_venv(".venv") / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "trainer", "plan", "--preset", "openwebtext-124m"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == ExitCode.FATAL
    assert done.stderr.startswith("python -m trainer plan needs torch, which ")
    assert "-m pip install -r trainer/requirements.txt" in done.stderr
    assert "Traceback" not in done.stderr


def test_reader_that_has_enough_is_no_error() -> None:
    """A reader that closes early, as `... | head -1` does, gives no traceback."""
    read, write = os.pipe()
    os.close(read)
    asked = ["plan", "--preset", "shakespeare-char", "--vocab-size", "65"]
    done = subprocess.run(
        [sys.executable, "-m", "trainer", *asked],
        cwd=CHECKOUT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")
