"""What `bench.gangs` reads out of the events of pods: whether pods of two gangs existed at once,
and how soon the next gang ran.
"""

from bench.gangs_rows import disturbed, overlaps, starts_after_room, undisturbed
from bench.kinds_watch import Seen

ENDED = "Succeeded"


def story(*steps: tuple[str, str]) -> list[Seen]:
    """Return what a watch has seen, a second apart: pods such as `a0` of gang `a`, and their
    phases.
    """
    return [
        Seen(float(at), "DELETED" if phase == "gone" else "MODIFIED", pod, pod, phase, pod[0])
        for at, (pod, phase) in enumerate(steps)
    ]


def gang(name: str, phase: str) -> list[tuple[str, str]]:
    """Return the steps in which all three pods of a gang get this phase."""
    return [(f"{name}{index}", phase) for index in range(3)]


def test_gangs_one_after_another_do_not_overlap() -> None:
    """Gangs that follow each other do not overlap, and the time until the next one runs is measured
    from the end of the one before.
    """
    seen = story(
        *gang("a", "Running"), *gang("a", ENDED), *gang("a", "gone"), *gang("b", "Running")
    )
    assert overlaps(seen) == []
    assert starts_after_room(seen) == [6.0]  # from a2's end at 5 to b2 at 11
    assert disturbed(seen, 2, 1, "controllers").met


def test_single_pod_that_comes_too_early_is_found() -> None:
    """A single pod that exists before all pods of the gang before have ended is found, and the bar
    is missed.
    """
    seen = story(*gang("a", "Running"), ("a0", ENDED), ("a1", ENDED), ("b0", "Pending"))
    (found,) = overlaps(seen)
    assert found == "5.000: b0 came while a, b had pods"
    assert not disturbed(seen, 2, 1, "controllers").met


def test_late_next_gang_misses_the_bar() -> None:
    """The bar is missed if the next gang runs more than five seconds after the one before has
    ended; here it is six.
    """
    late = story(
        *gang("a", "Running"), *gang("a", ENDED), *gang("a", "gone"), *gang("b", "Running")
    )
    in_time = story(*gang("a", "Running"), *gang("a", ENDED), *gang("b", "Running"))
    assert not undisturbed(late, 2, "controllers").met
    assert undisturbed(in_time, 2, "controllers").met
    assert not undisturbed(story(*gang("a", "Running")), 1, "controllers").met
