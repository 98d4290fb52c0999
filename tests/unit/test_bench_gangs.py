"""The automaton of `bench.gangs`: pods of two gangs at once are found, and nothing else is."""

from bench.gangs_rows import overlaps, row, starts_after_room
from bench.kinds_watch import Seen

ENDED = "Succeeded"


def story(*steps: tuple[str, str]) -> list[Seen]:
    """What a watch has seen, a second apart: pods such as `a0` of gang `a`, and their phases."""
    return [
        Seen(float(at), "DELETED" if phase == "gone" else "MODIFIED", pod, pod, phase, pod[0])
        for at, (pod, phase) in enumerate(steps)
    ]


def gang(name: str, phase: str) -> list[tuple[str, str]]:
    return [(f"{name}{index}", phase) for index in range(3)]


def test_gangs_one_after_another_do_not_overlap() -> None:
    seen = story(
        *gang("a", "Running"), *gang("a", ENDED), *gang("a", "gone"), *gang("b", "Running")
    )
    assert overlaps(seen) == []
    assert starts_after_room(seen) == [6.0]  # from a2's end at 5 to b2 at 11
    assert row(seen, 2, 1).met


def test_single_pod_that_comes_too_early_is_found() -> None:
    seen = story(*gang("a", "Running"), ("a0", ENDED), ("a1", ENDED), ("b0", "Pending"))
    (found,) = overlaps(seen)
    assert found == "5.000: b0 came while a, b had pods"
    assert not row(seen, 2, 1).met
