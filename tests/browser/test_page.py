"""The page of `./disttrain dashboard` in a real browser. The source of its server's data is a
stand-in.
"""

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from cli.dashboard.details import log_of, rank_rows
from cli.dashboard.server import Server, serving
from cli.logs.line import Line
from tests.browser.browser import Browser, browser
from tests.browser.pictures import DOCS, SAVING, take
from tests.browser.recorded import (
    HOSTILE,
    NO_CURVES,
    NOT_SEEN,
    NOW,
    SEEN,
    Recorded,
    folder,
    pods,
    status,
)

LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]
PICTURES = [("dashboard-1280-light.png", 1280), ("dashboard-390-dark.png", 390)]
# For each visible element with text of its own: the contrast between the colour of the text and the
# first background behind it that is not transparent, and the beginning of the text.
CONTRASTS = """
const seen = (text) => text.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = seen(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.body.querySelectorAll("*")]
  .filter((each) => each.checkVisibility() && !each.closest(".skip")
    && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((each) => {
    const style = getComputedStyle(each);
    const colour = each.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(seen(colour)), light(ground(each))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), each.textContent.slice(0, 40)];
  });
"""
NAMELESS = """
return [...document.querySelectorAll("a, button, input, select, [role=img], [tabindex='0']")]
  .filter((each) => each.checkVisibility())
  .filter((each) => !(each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
    || each.textContent.trim() || [...(each.labels ?? [])].some((one) => one.textContent.trim())))
  .map((each) => each.outerHTML);
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """Yield the browser that all tests of this file share."""
    with browser() as made:
        yield made


@pytest.fixture
def recorded() -> Recorded:
    """Return the stand-in for the source; a test may change its answers while the page is open."""
    return Recorded()


@pytest.fixture
def server(recorded: Recorded, window: Browser) -> Iterator[Server]:
    """Yield a running server of the stand-in. Afterwards leave the page, so that it asks no
    more.
    """
    with serving(0, recorded) as made:
        yield made
        window.driver.get("about:blank")  # otherwise the page would go on to ask the next server
        window.complaints()
        window.forget()


def opened(window: Browser, server: Server, width: int = 1280, dark: bool = False) -> Browser:
    """Open the page, and return it once all of a run is shown."""
    window.open(server.address, width, 844, dark)
    window.wait("all of the run", lambda: window.text("#lines") and window.label("#loss-chart"))
    return window


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_page_fits_and_can_be_read_and_asks_nobody_else(
    window: Browser, server: Server, width: int, dark: bool
) -> None:
    """The page fits its window, its text has enough contrast, everything that can be used has a
    name for screen readers, and the browser asks no other host. This holds for a wide and a narrow
    window, light and dark.
    """
    opened(window, server, width, dark)
    window.click("#write")
    window.wait("the sample", lambda: "To be, or not" in window.text("#sample"))
    assert window.run("return document.documentElement.scrollWidth") == width
    table = "const table = document.querySelector('#ranks'); "
    assert window.run(f"{table} return table.scrollWidth - table.clientWidth") == 0
    is_dark = window.run("return matchMedia('(prefers-color-scheme: dark)').matches")
    assert is_dark == dark
    contrasts = window.run(CONTRASTS)
    assert len(contrasts) > 100
    assert [each for each in contrasts if each[0] < 4.5] == []
    assert window.run(NAMELESS) == []
    assert window.complaints() == []
    assert window.hosts() == {f"127.0.0.1:{server.port}"}


def test_contrast_that_is_too_low_would_be_found(window: Browser, server: Server) -> None:
    """The check of contrasts finds a text whose contrast is too low. Otherwise the test above could
    pass without looking at anything.
    """
    opened(window, server)
    window.run("document.querySelector('#platform').style.color = '#999'")
    found = [text for ratio, text in window.run(CONTRASTS) if ratio < 4.5]
    assert found == ["2 nodes, all Ready; 4 of 8 GPUs in use"]


def test_all_parts_of_a_run_show_their_numbers(window: Browser, server: Server) -> None:
    """Each part of the page shows the numbers of the run: the platform, state, step, transport,
    time, ranks, log and curves.
    """
    opened(window, server)
    assert "2 nodes, all Ready; 4 of 8 GPUs in use" in window.text("header")
    assert "dev\n● training" in window.text("#run .title")
    assert "2,860\nof 4,000" in window.text("#numbers")
    assert "1.8307" in window.text("#numbers")
    way = "InfiniBand (mlx5_0, mlx5_1), with GPUDirect, as asked."
    assert window.text("#transport") == f"Transport between the ranks: {way}"
    assert "63.9 % of 126.8 s went into steps that count." in window.text("#goodput")
    rows = window.text("#ranks tbody").splitlines()
    assert len(rows) == 6  # the slow rank has a second line, which says why
    row = "2 train-multipod-1 ● Ready gpu-1.example.org 12,053 1 3 h"
    assert " ".join(rows[2].split()).startswith(row)
    assert rows[4].startswith("▲ takes 1.8x as long: data loading")
    assert "a faulty row or page of GPU memory" in window.text("#lines")
    assert window.text("#curves output").startswith("Step 2,860: training 1.67")
    assert "median around it 48," in window.label("#speed-chart")


def test_page_goes_on_by_itself_and_says_how_old_it_is(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """The page shows new steps and states without a reload, and says how old its data is."""
    opened(window, server)
    # This change comes first, because the page may ask between the two.
    recorded.volume = {**SEEN, "age_seconds": 125.0}
    recorded.status = status("quiet", "no step is reported; one came every 0.3 s", step=2861)
    window.wait("the next step", lambda: "2,861" in window.text("#numbers"))
    assert "◌ quiet" in window.text("#run .title")
    assert "No step is reported; one came every 0.3 s." in window.text("#run-detail")
    assert "seen 2 min ago" in window.text("#volume-age")


def test_transport_that_was_not_asked_for_is_a_warning(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """A transport that was not asked for is a warning while the run lives. The words are those of
    `status`, or those of the run's events if the log's line is too far back.
    """
    opened(window, server)
    content = recorded.parts["goodput"]["content"]
    sockets = {"words": "TCP sockets (eth0)", "asked": "InfiniBand", "as_asked": False}
    recorded.parts["goodput"] = {**SEEN, "content": {**content, "transport": sockets}}
    said = (
        "Transport not as asked: TCP sockets (eth0), and the network profile asks for InfiniBand."
    )
    window.wait("the events", lambda: window.text("#transport") == said)
    training = status("training")
    told = replace(training.progress, transport="rank 1 by NCCL over TCP sockets")
    recorded.status = replace(training, progress=told)
    said = "Transport not as asked: rank 1 by NCCL over TCP sockets."
    window.wait("the line", lambda: window.text("#transport") == said)
    assert window.run("return document.querySelector('#transport').className") == "note problem"
    assert [text for ratio, text in window.run(CONTRASTS) if ratio < 4.5] == []
    recorded.status = replace(recorded.status, state="finished")
    calm = "Transport between the ranks: TCP sockets (eth0)."
    window.wait("the end", lambda: window.text("#transport") == calm)


def test_checkpoint_that_training_waits_for_is_said(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """A save that training waits for is shown in the list and in the head of the run, without a
    speed.
    """
    opened(window, server)
    recorded.status = status("saving", SAVING)
    window.wait("the state", lambda: "dev\n● saving" in window.text("#run .title"))
    assert "● saving" in window.text("#runs")
    detail = "Checkpoint step 2860 is being written, and training waits for it."
    assert detail in window.text("#run-detail")
    assert "48,210" not in window.text("#numbers")


@pytest.mark.parametrize(("name", "width"), PICTURES)
def test_pictures_of_the_docs_can_be_made(window: Browser, name: str, width: int) -> None:
    """The pictures in docs/ can be made, and are as wide as their names say. What they show is for
    people to look at.
    """
    made = take(window, Recorded(), width, "dark" in name)
    for picture in (made, (DOCS / name).read_bytes()):
        assert Image.open(io.BytesIO(picture)).width == width
    window.complaints()
    window.forget()


def test_names_and_lines_with_markup_are_shown_as_text(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """Markup in names, log lines and problems is shown as text everywhere on the page, and fits the
    window. Otherwise a run's name could run a script in the user's browser.
    """
    recorded.name, recorded.folders = HOSTILE, [folder(HOSTILE, 100, False)]
    failing = status("failing", HOSTILE)
    recorded.status = replace(failing, progress=replace(failing.progress, transport=HOSTILE))
    recorded.unseen = HOSTILE
    rows = [{**row, "pod": HOSTILE, "problem": HOSTILE} for row in rank_rows(pods(), NOW)]
    lines = log_of([Line(1.0, 0, 0, HOSTILE)], [HOSTILE])
    recorded.parts["ranks"]["content"] = rows
    recorded.parts["logs"]["content"] = lines
    recorded.parts["sample"]["content"] = {"text": HOSTILE, "tokens": 1}
    recorded.parts["goodput"] = {**SEEN, "problem": HOSTILE, "content": None}
    opened(window, server)
    window.click("#write")
    window.wait("the sample", lambda: HOSTILE in window.text("#sample"))
    places = ("#runs", "#unseen", "#run-title", "#run-detail", "#transport", "#ranks", "#lines")
    for place in (*places, "#logs", "#goodput-age"):
        assert HOSTILE in window.text(place), place
    # The only one is the page's own script.
    assert window.run("return document.querySelectorAll('img, script').length") == 1
    assert "<img" in window.run("return document.title")
    for width in (1280, 390):
        window.set_size(width, 844)
        window.wait("room", lambda w=width: window.run("return innerWidth") == w)
        assert window.run("return document.documentElement.scrollWidth") == width
    assert window.complaints() == []


def test_policy_refuses_markup_that_came_by_a_mistake(window: Browser, server: Server) -> None:
    """The browser's policy refuses to make markup of text and to load from another host. It
    protects the user even if the page's own code took text for markup.
    """
    opened(window, server)
    tried = "try { %s; return 'taken' } catch (error) { return error.name }"
    for code in (
        "document.body.innerHTML = arguments[0]",
        "document.body.setAttribute('onclick', 'document.title = 3')",
    ):
        assert window.run(tried % code, HOSTILE) == "TypeError", code
    window.complaints()
    elsewhere = "http://127.0.0.1:1/x"
    window.run("document.body.append(Object.assign(new Image(), {src: arguments[0]}))", elsewhere)
    window.wait("the refusal", lambda: elsewhere in " ".join(window.complaints()))
    assert window.text("#numbers")


def test_keyboard_reaches_another_run_and_single_steps(window: Browser, server: Server) -> None:
    """With the keyboard alone, a user can open another run and read single steps of a curve."""
    opened(window, server)
    focused = "return document.activeElement.textContent"
    for _ in range(20):
        window.press("TAB")
        if window.run(focused) == "wide":
            break
    window.press("ENTER")
    window.wait("the other run", lambda: "wide\n✓ finished" in window.text("#run .title"))
    assert window.run(focused) == "wide"  # the focus stays although the list was drawn anew
    window.wait("its curve", lambda: window.label("#loss-chart"))
    window.run("document.querySelector('#loss-chart').focus()")
    window.press("HOME")
    assert window.text("#curves output").startswith("Step 1: ")
    window.press("ARROW_RIGHT")
    assert not window.text("#curves output").startswith("Step 1: ")


def test_curves_of_two_runs_are_compared(window: Browser, server: Server) -> None:
    """The curves of another run can be drawn beside those of the run that is shown."""
    opened(window, server)
    window.run(
        "const s = document.querySelector('#compare'); s.value = 'volume.wide';"
        "s.dispatchEvent(new Event('change'))"
    )
    window.wait("both", lambda: "validation of wide" in window.text("#curves .legend"))
    assert window.run("return document.querySelectorAll('#loss-chart path.other').length") == 2


def test_lines_are_chosen_by_rank_and_words(window: Browser, server: Server) -> None:
    """The log can be filtered by rank and by words, in capitals or not."""
    opened(window, server)
    window.driver.find_element("css selector", "#words").send_keys("STEP 2849")
    assert "1 of the last 52 lines" in window.text("#logs")
    window.run(
        "const s = document.querySelector('#rank'); s.value = '3';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert "None of the last 52 lines is like that." in window.text("#logs")


def test_sample_is_asked_for_once_by_a_click(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """A sample is asked for only by a click. While the trainer writes it, the button is off, and
    once the sample is there it is not asked for again.
    """
    opened(window, server)
    assert "sample" not in recorded.asked
    recorded.parts["sample"] = {**NOT_SEEN, "content": None}
    window.click("#write")
    window.wait("the wait", lambda: "The trainer is writing" in window.text("#sample-age"))
    assert not window.driver.find_element("css selector", "#write").is_enabled()
    recorded.parts["sample"] = {**SEEN, "content": {"text": "To be", "tokens": 2}}
    window.wait("the text", lambda: "To be" in window.text("#sample"))
    window.wait("its age", lambda: "seen" in window.text("#sample-age"))
    asked, rounds = (recorded.asked.count(part) for part in ("sample", "overview"))
    window.wait("two rounds", lambda: recorded.asked.count("overview") > rounds + 2)
    assert recorded.asked.count("sample") == asked
    assert window.driver.find_element("css selector", "#write").is_enabled()


def test_command_that_has_ended_is_said_and_forgotten(window: Browser, recorded: Recorded) -> None:
    """When the command on the user's machine has ended, the page says so and keeps what it has
    shown. When the command runs again, the page goes on.
    """
    with serving(0, recorded) as first:
        opened(window, first)
        port = first.port
    window.wait("the banner", lambda: "does not answer" in window.text("#away"))
    assert "Below is what was seen at " in window.text("#away")
    assert "1.8307" in window.text("#numbers")
    with serving(port, recorded):
        window.wait("its end", lambda: not window.text("#away"))
        window.driver.get("about:blank")
    window.complaints()  # forget the complaint of the browser itself that nobody listens
    window.forget()


def test_fault_of_the_page_is_in_the_console(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """A fault of the page's own code is an error in the console, and the page goes on to ask. It
    does not say that the command has ended. Otherwise no other test here would see such a fault.
    """
    opened(window, server)
    good = recorded.parts["ranks"]
    recorded.parts["ranks"] = {**SEEN, "content": "not a list of rows"}
    window.wait("the error", lambda: "Uncaught TypeError" in " ".join(window.complaints()))
    asked = recorded.asked.count("overview")
    window.wait("two rounds", lambda: recorded.asked.count("overview") > asked + 2)
    assert window.text("#away") == ""
    recorded.parts["ranks"] = good
    recorded.status = status("training", step=2862)
    window.wait("the next step", lambda: "2,862" in window.text("#numbers"))


def said(**change: Any) -> Recorded:
    """Return the stand-in for the source with these changes."""
    made = Recorded()
    for name, value in change.items():
        setattr(made, name, value)
    return made


UNREACHABLE = {**NOT_SEEN, "is_querying": False, "problem": "the API server does not answer"}
STATES: dict[str, tuple[Recorded, str, str]] = {
    "nothing was seen yet": (
        said(has_runs=False, cluster=NOT_SEEN, volume=NOT_SEEN),
        "#runs",
        "Looking for runs.",
    ),
    "the cluster cannot be reached": (
        said(has_runs=False, cluster=UNREACHABLE, volume=NOT_SEEN),
        "#runs",
        "The cluster was not seen, so no run is shown.",
    ),
    "why it cannot": (
        said(has_runs=False, cluster=UNREACHABLE, volume=NOT_SEEN),
        "#cluster-age",
        "Not seen: the API server does not answer.",
    ),
    "there are no runs": (
        said(has_runs=False),
        "#runs",
        "There are no runs yet. `pulumi up` starts the first one.",
    ),
    "an old answer stays": (
        said(cluster={"age_seconds": 240.0, "problem": "no route", "is_querying": False}),
        "#cluster-age",
        "The last query failed: no route. This was seen 4 min ago.",
    ),
    "not all may be read": (
        said(unseen="runs in other namespaces"),
        "#unseen",
        "Not seen: runs in other namespaces.",
    ),
    "a run without metrics": (
        said(parts={**Recorded().parts, "curves": {**SEEN, "content": NO_CURVES}}),
        "#curves",
        "This run has measured nothing yet.",
    ),
    "a run without events": (
        said(
            parts={
                **Recorded().parts,
                "goodput": {**UNREACHABLE, "problem": "there are no events", "content": None},
            }
        ),
        "#goodput-age",
        "Not seen: there are no events.",
    ),
    "a run without pods": (
        said(parts={**Recorded().parts, "ranks": {**SEEN, "content": []}}),
        "#ranks",
        "The run has no pods now.",
    ),
    "a run without lines": (
        said(parts={**Recorded().parts, "logs": {**SEEN, "content": log_of([], [])}}),
        "#logs",
        "There are no lines yet: no pod of this run has printed one.",
    ),
    "a pod with a problem": (
        said(parts={**Recorded().parts, "ranks": {**SEEN, "content": rank_rows(pods(1), NOW)}}),
        "#ranks",
        "pod train-multipod-1: ErrImagePull: not found",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_what_is_missing_is_said_in_a_sentence(window: Browser, state: str) -> None:
    """What is missing, and why, is said in a sentence at its place."""
    recorded, place, sentence = STATES[state]
    with serving(0, recorded) as made:
        window.open(made.address, 390)
        window.wait(sentence, lambda: sentence in window.text(place))
        assert window.run("return document.documentElement.scrollWidth") == 390
        window.driver.get("about:blank")
    assert window.complaints() == []
    window.forget()


def test_address_of_a_run_opens_that_run(window: Browser, server: Server) -> None:
    """An address with the id of a run opens the page at that run."""
    window.open(f"{server.address}#run=volume.not-begun", 390)
    window.wait("that run", lambda: "not-begun\n○ kept" in window.text("#run .title"))
    window.wait("its curves", lambda: "has measured nothing yet" in window.text("#curves"))
    assert "No stack has it now; its folder is on the volume." in window.text("#run-detail")


def test_address_of_a_run_that_is_not_there_says_so(
    window: Browser, server: Server, recorded: Recorded
) -> None:
    """For an address with the id of a run that is not there, the page says so and shows another
    run. It waits with this until the volume was seen.
    """
    recorded.volume = NOT_SEEN
    window.open(f"{server.address}#run=volume.gone")
    window.wait("the runs", lambda: "wide" in window.text("#runs"))
    assert window.text("#run") == ""  # the run may be there once the volume is seen
    recorded.volume = SEEN
    window.wait("the sentence", lambda: "(volume.gone) is not there." in window.text("#unseen"))
    window.wait("another run", lambda: "dev" in window.text("#run-title"))
