"""Fixtures for files of fields."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each access to an HDF5 array brought in, as they happen."""
    seen: list[int] = []
    original = h5py.Dataset.__getitem__

    def counted(self: h5py.Dataset, index: Any, **options: Any) -> Any:
        values = original(self, index, **options)
        seen.append(np.asarray(values).nbytes)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    return seen
