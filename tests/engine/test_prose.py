"""Plain technical English: words that name a feeling or a conversation of the code are refused."""

from __future__ import annotations

import re
import tokenize
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("jaxrl_rollouts", "offline", "pde")
FILES = [
    file
    for room in ROOMS
    for file in sorted((ROOT / room).rglob("*.py"))
    if not any(part.is_symlink() for part in file.parents if part != ROOT)
]
WORDS = re.compile(
    r"\b(nobody|whoever|told|said|owed|owes|lost|paid|heeds|judge[sd]?|wants?|tells?|opinions?"
    r"|believe[sd]?)\b",
    re.IGNORECASE,
)
# A core file explains where it departs from the plain formula.
CORE = (
    "jaxrl_rollouts/rollouts.py",
    "jaxrl_rollouts/loop.py",
    "jaxrl_rollouts/ensemble.py",
    "jaxrl_rollouts/fitting.py",
    "jaxrl_rollouts/diffusion/sampler.py",
    "offline/agents/sac.py",
    "offline/methods/model_based.py",
    "pde/objectives/refiner.py",
)


def texts(file: Path) -> list[tuple[int, str]]:
    """Comments and strings of a file, with their lines."""
    kinds = (tokenize.COMMENT, tokenize.STRING)
    with file.open("rb") as stream:
        return [
            (t.start[0], t.string) for t in tokenize.tokenize(stream.readline) if t.type in kinds
        ]


def test_the_words_of_the_library_are_the_fields() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {match[0]}"
        for file in FILES
        for line, text in texts(file)
        if (match := WORDS.search(text))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", CORE)
def test_core_files_say_why(name: str) -> None:
    lines = [line.strip() for line in (ROOT / name).read_text("utf-8").splitlines()]
    # A block is one comment; what stands behind code says what the code is.
    blocks = [now for before, now in pairwise(["", *lines]) if now[:1] == "#" != before[:1]]
    blocks = [block for block in blocks if not block.endswith("---")]  # headings
    assert len(blocks) >= 10, blocks
