"""What the program of an exported policy may call, and what it may answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest
from helpers_exported import altered

from jaxrl_rollouts import exported
from jaxrl_rollouts.exported import load_exported


def test_an_action_that_is_not_finite_is_refused() -> None:
    def act(values: Any, *_: Any) -> Any:
        return np.where(values[:, :1] > 0, np.nan, 0.5), values[:, :1]

    facts = {"observation_size": 3, "action_size": 1, "remembers": False, "memory": []}
    player = exported.Player(act, facts)
    assert player(np.zeros(3)) == 0.5
    with pytest.raises(ValueError, match="action: found a number that is not finite"):
        player(np.ones(3))


def test_a_program_that_calls_what_lies_outside_is_never_run(tmp_path: Path) -> None:
    """A call of Python with a made-up index is a jump into memory of the process."""
    pytest.importorskip("flatbuffers")
    facts = {"format": 1, "observation_size": 3, "action_size": 1, "remembers": False, "memory": []}

    def act(observation: Any, reward: Any, fresh: Any, last: Any) -> Any:
        outside = jax.ffi.ffi_call("xla_ffi_python_cpu_callback", last)
        return outside(last, index=np.uint64(12345)), last

    (rows,) = jax.export.symbolic_shape("rows")
    shapes = [((3,), "float32"), ((), "float32"), ((), "bool"), ((1,), "float32")]
    inputs = [jax.ShapeDtypeStruct((rows, *shape), kind) for shape, kind in shapes]
    allowed = [jax.export.DisabledSafetyCheck.custom_call("xla_ffi_python_cpu_callback")]
    plain = jax.export.export(jax.jit(lambda o, r, f, last: (last + o[:, :1], last)))(*inputs)
    text = plain.mlir_module()
    assert load_exported(altered(tmp_path, facts, bytes(plain.serialize()))) is not None
    assert exported.foreign_calls(text) == ""
    for hostile, says in (
        ("stablehlo.custom_call @xla_ffi_python_cpu_callback(%0) {", "xla_ffi_python_cpu_callback"),
        ('stablehlo.custom_call @"a-b"(%0)', "custom call"),
        ('"stablehlo.custom_call"(%0) <{call_target_name = "Sharding"}>', "custom call"),
        ('"stablehlo.custom_call"(%0) {x = "xcustom_call @Sharding("}', "custom call"),
        ('"stablehlo.infeed"(%0)', "infeed"),
        ("custom_call @Sharding(%0) stablehlo.custom_call @lapack_sgetrf_ffi(%1)", "lapack"),
    ):
        assert says in exported.foreign_calls(text + hostile)
    assert exported.foreign_calls(text + "stablehlo.custom_call @Sharding(%0)") == ""
    fixed = [jax.ShapeDtypeStruct((1, *shape), kind) for shape, kind in shapes]
    program = jax.export.export(jax.jit(act), disabled_checks=allowed)(*fixed)
    with pytest.raises(ValueError, match="a call of xla_ffi_python_cpu_callback, expected"):
        load_exported(altered(tmp_path, facts, bytes(program.serialize())))
