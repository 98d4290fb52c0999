"""Makes a small checkout with the files of which an image is made."""

from pathlib import Path


def write_project(root: Path) -> Path:
    """Write the checkout below `root`; return `root`."""
    for name, text in {
        "docker/Dockerfile": "FROM x\n",
        "trainer/requirements.txt": "torch==1\n",
        "trainer/__main__.py": "print()\n",
        "trainer/presets/small.yaml": "a: 1\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
