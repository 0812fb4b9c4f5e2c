"""A tenth of the battery; `python -m tests.battery` is the whole."""

from __future__ import annotations

import importlib

import pytest

from .__main__ import PARTS


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_silently_wrong_crashes_or_is_lost(name: str) -> None:
    bad, tried = [], 0
    for tally in importlib.import_module(f".{name}", __package__).run(0.1, 0):
        tried += tally.tried
        bad += tally.bad
    assert tried and not bad
