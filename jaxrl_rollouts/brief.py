"""Short texts of results: arrays by type and shape, trees of them by their size.

class Result(NamedTuple):
    params: PyTree
    __repr__ = brief
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

SMALL = 8  # numbers of an array that are written out


def brief(self: Any) -> str:
    """`Result(params=1,024 numbers in 6 arrays, steps=5)` of a named tuple or a dataclass.

    What is empty, unknown (None, NaN) or a function is left out.
    """
    named = isinstance(self, tuple)
    names = self._fields if named else [x.name for x in dataclasses.fields(self)]  # type: ignore[attr-defined]
    shown = {name: _text(getattr(self, name)) for name in names}
    return f"{type(self).__name__}({', '.join(f'{n}={x}' for n, x in shown.items() if x)})"


def _text(value: Any) -> str:
    """Empty for what is left out."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if hasattr(value, "_fields") and _has_functions(value):
        return "" if (text := brief(value)).endswith("()") else text
    if isinstance(value, Mapping | tuple | list):
        return _tree(value)
    if value is None or value == "" or (callable(value) and not isinstance(value, type)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _has_functions(value: Any) -> bool:
    leaves = value if isinstance(value, tuple) else ()
    return any(_has_functions(x) or (callable(x) and not isinstance(x, type)) for x in leaves)


def _array(value: Any) -> str:
    if value.ndim > 0 and value.size <= SMALL and np.issubdtype(value.dtype, np.number):
        numbers = np.asarray(value).ravel()
        return "" if np.isnan(numbers).all() else f"[{', '.join(f'{x:.4g}' for x in numbers)}]"
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _tree(value: Any) -> str:
    import jax

    if type(value).__repr__ is brief or not value:
        return repr(value) if value else ""
    arrays = [x for x in jax.tree.leaves(value) if hasattr(x, "shape")]
    if not arrays:
        return repr(value)
    return f"{sum(x.size for x in arrays):,} numbers in {len(arrays)} arrays"
