"""Checks of torch.compile alone, with DDP and with FSDP2, with and without recomputed blocks."""

from __future__ import annotations

from collections.abc import Callable

from tests.gpu.new_pod import TRIAL, start_in_new_pod
from tests.gpu.place import CompiledGraphs, Place, assert_close, losses

LAYERS = 12  # as in gpt2-124m, and more than the 8 times that TorchDynamo compiles one function
KINDS = ("alone", "ddp", "fsdp")


def compiled_trains_as_eager(place: Place, kind: str, recomputes: bool) -> str:
    """A compiled model learns the same as one that is not compiled, and is compiled in the first
    step.

    A global batch of 10 in micro-batches of 3 ends with a micro-batch of a single sequence, and the
    evaluation at the end has batches that are not full. Neither may compile the model again.
    """
    shape = {
        "model__n_layer": LAYERS,
        "train__max_steps": 4,
        "train__parallel": "ddp" if kind == "alone" else kind,
        "train__activation_checkpointing": recomputes,
        "train__dtype": "float32",
        "eval__interval": 2,
    }
    found: list[list[float]] = []
    graphs, at_first_step = CompiledGraphs(), list[int]()

    def on_first_step() -> None:
        at_first_step.append(graphs.count())

    for compiles in ("off", "on"):
        run = place.config(f"{kind}-{compiles}", train__compile=compiles, **shape)
        with place.group_of_one(kind, run) as world:
            graphs.forget()
            at_first_step.clear()
            records = place.train(run, world, on_first_step)
            found.append(losses(records))
            found.append([r["val_loss"] for r in records if r["val_loss"] is not None])
        if compiles == "off":
            assert graphs.count() == 0, "something was compiled that should not be"
    worst = max(
        assert_close(found[0], found[2], 2e-3, "losses"),
        assert_close(found[1], found[3], 2e-3, "validation losses"),
    )
    (first,), last = at_first_step, graphs.count()
    assert first > 0, "nothing was compiled"
    assert not graphs.breaks(), f"graphs were cut: {graphs.breaks()}"
    # The evaluation needs no gradients, so it has a graph of its own if it is compiled at all.
    assert last - first <= 1, f"{first} graphs at the first step, {last} at the end"
    return f"{first} graphs at the first step, {last} in all; losses within {worst:.0e}"


def _check(kind: str, recomputes: bool) -> Callable[[Place], str]:
    def check(place: Place) -> str:
        return compiled_trains_as_eager(place, kind, recomputes)

    check.__name__ = f"compiled_{kind}_{'recomputed' if recomputes else 'kept'}"
    return check


def a_new_pod_takes_the_compiled_code(place: Place) -> str:
    """With `train.keep_compiled`, a start with empty caches compiles nothing of the model again.

    This holds for its steps and for the evaluation at its end.
    """
    first, _ = start_in_new_pod(place, "first", keeps=True, steps=3)
    made = first["fxgraph_cache_miss"] - TRIAL
    assert made > 0, f"nothing was compiled: {first}"
    second, _ = start_in_new_pod(place, "second", keeps=True, steps=6)
    again = second["fxgraph_cache_miss"] - TRIAL
    assert again == 0, f"{again} of {made} graphs were compiled again: {second}"
    return f"{made} graphs, none of them compiled again"


CHECKS = (
    *(_check(kind, recomputes) for kind in KINDS for recomputes in (False, True)),
    a_new_pod_takes_the_compiled_code,
)
