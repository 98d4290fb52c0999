"""How tokens are drawn from a model, with and without the cache of keys and values."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.config import ModelConfig
from trainer.model.generate import Sampling, generate
from trainer.model.gpt import GPT, KVCache

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.1, bias=True)


@pytest.fixture(scope="module")
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(CONFIG, vocab_size=65).eval()


def tokens_of(
    model: GPT, sampling: Sampling, count: int = 40, seed: int = 3, use_cache: bool = True
) -> torch.Tensor:
    """Return `count` tokens after each of two prompts of three tokens, as `(2, count)`."""
    start = torch.arange(6).reshape(2, 3)
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(list(generate(model, start, count, sampling, generator, use_cache)), dim=1)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.0), Sampling(1.0), Sampling(0.8, top_k=10), Sampling(1.2, top_k=30, top_p=0.9)],
)
def test_the_cache_changes_no_token_also_past_the_end_of_the_block(
    model: GPT, sampling: Sampling
) -> None:
    """The same tokens are drawn with the cache and without it, also when the text is longer than
    the block.
    """
    with_cache, without = (tokens_of(model, sampling, 60, use_cache=c) for c in (True, False))
    assert torch.equal(with_cache, without)


def test_the_cache_gives_the_logits_of_the_whole_context(model: GPT) -> None:
    tokens, cache = torch.randint(65, (3, 16)), KVCache(CONFIG, 3, model.wpe.weight)
    with torch.no_grad():
        model(tokens[:, :7], cache=cache)
        for length in range(8, 17):
            logits = model(tokens[:, length - 1 : length], cache=cache)
            torch.testing.assert_close(logits, model(tokens[:, :length]))


def test_the_seed_decides_the_tokens(model: GPT) -> None:
    one, same, other = (tokens_of(model, Sampling(1.0), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_tokens_stay_inside_the_vocabulary() -> None:
    torch.manual_seed(0)
    model = GPT(CONFIG, vocab_size=1025).eval()  # padded to 1088
    assert tokens_of(model, Sampling(50.0), 200).max() < 1025


def test_top_1_and_a_tiny_top_p_are_the_likeliest_token(model: GPT) -> None:
    """`top_k` of 1 and a tiny `top_p` give the likeliest token each time."""
    greedy = tokens_of(model, Sampling(0.0))
    assert torch.equal(tokens_of(model, Sampling(1.0, top_k=1)), greedy)
    assert torch.equal(tokens_of(model, Sampling(1.0, top_p=1e-9)), greedy)


def test_a_prompt_longer_than_the_block_counts_from_its_end(model: GPT) -> None:
    long, generator = torch.randint(65, (1, 50)), torch.Generator()
    one = next(generate(model, long, 1, Sampling(0.0), generator))
    two = next(generate(model, long[:, -16:], 1, Sampling(0.0), generator))
    assert torch.equal(one, two)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for top_p, kept in ((0.4, 1), (0.6, 2), (0.79, 2), (0.81, 3), (1.0, 4)):
        probabilities = Sampling(top_p=top_p).probabilities(logits)
        assert (probabilities > 0).sum() == kept
        wanted = torch.tensor([0.5, 0.3, 0.15, 0.05])[:kept]
        torch.testing.assert_close(probabilities[0, :kept], wanted / wanted.sum())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=20),
    st.floats(0.01, 100),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.none(), st.floats(0.01, 1)),
)
def test_probabilities_add_up_and_never_lose_the_likeliest_token(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    row = torch.tensor([logits])
    probabilities = Sampling(temperature, top_k, top_p).probabilities(row)
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    likelihoods = (row / temperature).softmax(dim=-1)  # of two that are equal one is enough
    assert likelihoods[probabilities > 0].max() == likelihoods.max()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((-0.1, None, None), "temperature: -0.1 cannot be used: .* Set a number of at least 0"),
        ((math.nan, None, None), "temperature: nan"),
        ((math.inf, None, None), "temperature: inf"),
        ((1.0, 0, None), "top-k: 0 cannot be used: .* Set a whole number of at least 1"),
        ((1.0, None, 0.0), "top-p: 0.0 cannot be used: .* Set a number above 0 and at most 1"),
        ((1.0, None, 1.1), "top-p: 1.1"),
        ((1.0, None, math.nan), "top-p: nan"),
    ],
)
def test_bad_values_are_named(values: tuple[float, int | None, float | None], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sampling(*values)


@pytest.mark.parametrize("temperature", [1e-40, 1e-300])
def test_smallest_temperatures_take_the_likeliest_token(temperature: float) -> None:
    """The smallest temperatures take the likeliest token. Divided by them, logits would be too
    large for float32, and the probabilities no numbers.
    """
    found = Sampling(temperature=temperature).probabilities(torch.tensor([[1.0, 3.0, -2.0]]))
    assert found.tolist() == [[0.0, 1.0, 0.0]]
