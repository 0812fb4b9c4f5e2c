"""The one name for nested containers of arrays: parameters, states, batches."""

from __future__ import annotations

from typing import Any

PyTree = Any
