"""Which checkpoint is copied to the mirror next, and which ones are removed there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.mirror.plan import next_to_copy, too_many

STEPS = st.integers(1, 30)
FEW_STEPS = st.integers(1, 8)  # often the same ones in the mirror and on the volume


@given(st.dictionaries(STEPS, st.binary(max_size=2)), st.sets(STEPS))
def test_copying_ends_with_newest_and_best_in_the_mirror(
    local: dict[int, bytes], remote_steps: set[int]
) -> None:
    """At most three copies bring the newest and the best checkpoint of the volume into the mirror,
    with the content that they have on the volume.
    """
    best = min(local, default=None)
    remote = dict.fromkeys(remote_steps, b"another")
    for _ in range(3):
        step = next_to_copy(local, remote, best)
        if step is None:
            break
        remote[step] = local[step]
    assert next_to_copy(local, remote, best) is None
    for step in {max(local, default=None), best} - {None}:
        assert step is not None
        assert remote[step] == local[step]


@given(
    st.dictionaries(FEW_STEPS, st.one_of(st.none(), st.floats(0, 9))),
    FEW_STEPS,
    st.integers(1, 4),
    FEW_STEPS,
)
def test_newest_and_best_and_those_to_come_are_never_removed(
    remote: dict[int, float | None], newest_local: int, keep_last: int, best_local: int
) -> None:
    """The mirror keeps the newest checkpoints, the best one, the volume's best one, and those newer
    than the volume's newest.
    """
    doomed = too_many(remote, newest_local, keep_last, best_local)
    kept = set(remote) - set(doomed)
    assert {step for step in remote if step > newest_local} <= kept
    ours = sorted((step for step in remote if step <= newest_local), reverse=True)
    assert set(ours[:keep_last]) <= kept
    losses = [loss for loss in remote.values() if loss is not None]
    if losses:
        assert min(losses) in [remote[step] for step in kept]
    if remote.get(best_local) is not None:
        assert best_local in kept
    best_ones = 2
    assert len([step for step in kept if step <= newest_local]) <= keep_last + best_ones
