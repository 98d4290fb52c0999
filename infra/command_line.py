"""What the programs that Pulumi's commands run have in common. Standard library only."""

import os
import textwrap
from pathlib import Path

LINE_LIMIT = 200  # Pulumi's command provider stops reading at very long lines


def short_lines(text: str) -> list[str]:
    """The lines of a text, each broken where the provider would not take it."""
    return ["\n".join(textwrap.wrap(line, LINE_LIMIT)) for line in text.splitlines()]


def cache_folder() -> Path:
    """`$DISTTRAIN_CACHE`, else `~/.cache/disttrain`."""
    return Path(os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain")
