"""The model: its loss, its initial values, its optimizer, and the memory that its logits take."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from bench import nanogpt_like
from trainer.checkpoint.tensors import give_memory, state_tensors
from trainer.config import ModelConfig, TrainConfig
from trainer.model import linear
from trainer.model.gpt import (
    GPT,
    make_optimizer,
    padded_vocab_size,
)

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.0, bias=True)


@pytest.fixture(params=["default", "onednn"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GPT:
    """Return a model on each of the two libraries that multiply its matrices, whichever this CPU
    would use.
    """
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: request.param == "onednn")
    torch.manual_seed(0)
    return GPT(CONFIG, vocab_size=65)


def random_batch(rows: int = 4, length: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and targets of shape `(rows, length)`, which are the same each time."""
    tokens = torch.randint(65, (rows, length + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


def test_logits_are_of_the_token_after_the_last_one(model: GPT) -> None:
    tokens, _ = random_batch()
    assert model(tokens).shape == (4, 65)


def test_the_loss_at_the_start_is_that_of_a_nearly_uniform_guess(model: GPT) -> None:
    tokens, targets = random_batch(64)
    loss = model(tokens, targets).item() / targets.numel()
    logits_variance = 0.02**2 * 768  # GPT-2's, at any width
    assert loss == pytest.approx(math.log(65) + logits_variance / 2, abs=0.05)


def test_the_loss_is_the_sum_over_tokens(model: GPT) -> None:
    tokens, targets = random_batch()
    whole = model(tokens, targets)
    parts = [model(tokens[i : i + 1], targets[i : i + 1]) for i in range(4)]
    assert torch.stack(parts).sum().item() == pytest.approx(whole.item(), rel=1e-6)


def test_a_token_sees_nothing_that_comes_after_it(model: GPT) -> None:
    tokens, _ = random_batch(1)
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 65
    assert torch.equal(model(tokens[:, :10]), model(changed[:, :10]))


def test_a_token_sees_everything_up_to_itself(model: GPT) -> None:
    tokens, targets = random_batch(1)
    ignored = torch.full_like(targets, -100)  # cross_entropy's ignore_index
    ignored[0, 7] = targets[0, 7]
    model(tokens, ignored).backward()
    assert model.wpe.weight.grad is not None
    reached = model.wpe.weight.grad.abs().sum(dim=1) > 0
    assert reached.tolist() == [True] * 8 + [False] * 8


@pytest.mark.parametrize(("width", "std"), [(768, 0.02), (192, 0.04)])
def test_initial_values_are_gpt2s_at_its_width_and_as_large_in_effect_at_others(
    width: int, std: float
) -> None:
    """Initial weights have GPT-2's standard deviation at its width, and a larger one for narrower
    models.
    """
    torch.manual_seed(0)
    model = GPT(ModelConfig(n_layer=8, n_head=4, n_embd=width, bias=True), vocab_size=500)
    named = dict(model.named_parameters())
    assert named["wte.weight"].std().item() == pytest.approx(std, rel=0.05)
    assert named["blocks.3.mlp.c_fc.weight"].std().item() == pytest.approx(std, rel=0.05)
    residual = named["blocks.3.mlp.c_proj.weight"].std().item()
    assert residual == pytest.approx(std / math.sqrt(16), rel=0.05)
    assert (named["blocks.0.attn.c_attn.bias"] == 0).all()
    assert (named["ln_f.weight"] == 1).all()


def test_compiled_logits_are_kept_in_low_precision() -> None:
    """In bfloat16 the logits, with GPT-2's vocabulary the largest tensor of all, are kept in
    bfloat16 for the backward pass. If minus infinity were written over their padding, they would be
    kept in float32.
    """
    kept: list[torch.dtype] = []

    def note(graph: Any, _: object) -> Any:
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        for node in output.args[0]:
            value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
            if isinstance(value, torch.Tensor) and value.shape[-1:] == (1088,):
                kept.append(value.dtype)
        return boxed(graph, None)

    def boxed(graph: Any, _: object) -> Any:
        return make_boxed_func(graph)

    backend = aot_autograd(
        fw_compiler=note,
        bw_compiler=boxed,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    tokens, targets = random_batch()
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(GPT(CONFIG, vocab_size=1025), backend=backend)(tokens, targets).backward()
    assert kept == [torch.bfloat16]


class MovedBytes(TorchDispatchMode):
    """Counts the bytes of the logits that operators read and write; a view moves none."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            found = tree_flatten((args, kwargs, result))[0]
            logits = [x for x in found if isinstance(x, torch.Tensor) and x.shape[-1:] == (1088,)]
            self.total += sum(x.numel() * x.element_size() for x in logits)
        return result


def test_passes_move_the_logits_no_more_than_a_plain_loop() -> None:
    """The passes move at most 1 % more bytes of logits than a plain loop. With GPT-2's vocabulary
    logits are most of what an eager step moves, and minus infinity written over their padding would
    move 38 % more.
    """
    tokens, targets = random_batch()
    moved: list[int] = []
    for model in (GPT(CONFIG, vocab_size=1025), nanogpt_like.Model(CONFIG, 1088)):
        with MovedBytes() as counted:
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(tokens, targets)
            loss.backward()
        moved.append(counted.total)
    ours, plain = moved
    assert 0 < ours <= plain * 1.01  # what is added for the padding has a row of its own


def test_the_padding_of_the_vocabulary_takes_no_part_in_the_loss() -> None:
    torch.manual_seed(0)
    model = GPT(CONFIG, vocab_size=1025)  # padded to 1088
    tokens, targets = random_batch()
    before = model(tokens, targets)
    with torch.no_grad():
        model.wte.weight[1025:] = 100.0
    assert torch.equal(model(tokens, targets), before)
    assert model(tokens).shape == (4, 1025)


def test_logits_are_not_copied_without_their_padding(model: GPT) -> None:
    """The logits are kept once, with their padding. Cutting the padding off before the loss would
    make a second copy in float32, of 2.5 GB for `gpt2-124m`, in rows of an odd length.
    """
    model = GPT(CONFIG, vocab_size=1025)  # padded to 1088
    tokens, targets = random_batch()
    kept: set[tuple[int, int]] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 2 and len(tensor) == targets.numel():
            kept.add((tensor.shape[1], tensor.data_ptr()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(tokens, targets).backward()
    widths = [width for width, _ in kept]
    assert 1025 not in widths
    assert widths.count(1088) == 1  # what the backward pass of the loss needs


def test_gpt2_has_124_million_parameters() -> None:
    with torch.device("meta"):
        config = ModelConfig(n_layer=12, n_head=12, n_embd=768, block_size=1024, bias=True)
        model = GPT(config, vocab_size=50257)
    padding = (padded_vocab_size(50257) - 50257) * 768
    assert sum(p.numel() for p in model.parameters()) - padding == 124_439_808  # OpenAI's gpt2


def test_matrices_decay_and_biases_and_norms_do_not(model: GPT) -> None:
    decaying, others = make_optimizer(model, TrainConfig(weight_decay=0.1)).param_groups
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() == 2 for p in decaying["params"])
    assert all(p.dim() == 1 for p in others["params"])
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_the_optimizer_continues_exactly_from_its_saved_state(model: GPT) -> None:
    """An optimizer that gets the saved state makes bit by bit the same update."""

    def update(model: GPT, optimizer: torch.optim.AdamW) -> None:
        optimizer.zero_grad()
        model(*random_batch()).backward()
        optimizer.step()

    train = TrainConfig()
    optimizer = make_optimizer(model, train)
    update(model, optimizer)
    other = GPT(CONFIG, vocab_size=65)
    other.load_state_dict(model.state_dict())
    continued = make_optimizer(other, train)
    give_memory(continued)
    saved = state_tensors(model, optimizer)
    for name, tensor in state_tensors(other, continued).items():
        tensor.detach().copy_(saved[name].detach())
    update(model, optimizer)
    update(other, continued)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
