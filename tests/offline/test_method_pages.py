"""Pages of methods: the settings that they name exist and have the defaults that they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jaxrl_rollouts.configs import settings
from jaxrl_rollouts.offline.methods import METHODS

PAGES = Path(__file__).parents[2] / "docs" / "pages" / "methods"
METHOD = re.compile(r"--method (\w+)")
OF_METHODS = [path for path in sorted(PAGES.glob("*.md")) if METHOD.search(path.read_text())]
ROW = re.compile(r"^\| (`.+?`) \| (.+?) \|", re.MULTILINE)


def written(value: Any) -> str:
    """A default as pages have it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(written, value))
    return str(value).strip("`")


def same(text: str, value: Any) -> bool:
    number = text.replace(",", "").replace("−", "-")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return re.fullmatch(r"-?[\d.]+(e-?\d+)?", number) is not None and float(number) == value
    return text.strip("`") == written(value)


@pytest.mark.parametrize("path", OF_METHODS, ids=lambda path: path.stem)
def test_settings_on_a_page_are_the_methods(path: Path) -> None:
    text = path.read_text()
    names = list(dict.fromkeys(METHOD.findall(text)))
    known: dict[str, Any] = {}
    for name in reversed(names):
        made = METHODS[name]()
        known |= {"agent": getattr(getattr(made, "agent", None), "name", None), **settings(made)}
    rows = ROW.findall(text[text.index("## Settings") : text.index("## Result")])
    assert len(rows) >= 2
    for cell, default in rows:
        options = re.findall(r"`([^`]+)`", cell)
        assert set(options) <= set(known), (path.name, options)
        if len(names) == 1:
            told = default.split(", ") if len(options) > 1 else [default]
            for option, value in zip(options, told, strict=True):
                assert same(value, known[option]), (path.name, option, value, known[option])
