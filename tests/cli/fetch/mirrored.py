"""Helpers that fill a run's mirror as the trainer does, and fetch the run from the mirror."""

from collections.abc import Callable, Mapping
from pathlib import Path

from cli.fetch.bring import Brought
from cli.fetch.mirror_source import MirrorSource
from cli.fetch.order import Order
from tests.cli.fetch.local_pod import contents
from tests.trainer.mirror.volume import Volume
from trainer.mirror.remote_folder import RemoteFolder


def mirror(run: Path, url: str) -> None:
    """Copy the run's checkpoints, settings, metrics and tokenizer to the mirror `url`/words."""
    assert run.name == "words"
    Volume(run, url, keep_last=8).push()


def fetch(
    url: str,
    to: Path,
    choice: str = "latest",
    say: Callable[[str], None] = lambda line: None,
    run: str = "words",
) -> Brought:
    """Do what `fetch --from URL` does, without a stack's settings."""
    order = Order(run, choice=choice, to=str(to))
    source = MirrorSource(RemoteFolder(f"{url}/{run}"))
    return order.bring(source, run, order.folder(run), say)


def mirrored_contents(run: Path) -> Mapping[str, bytes]:
    """Return the contents of those files of a run that a mirror has too."""
    has = ("run.yaml", "metrics.jsonl", "tokenizer.json", "checkpoints/")
    return {name: each for name, each in contents(run).items() if name.startswith(has)}
