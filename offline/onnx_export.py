"""A policy as an ONNX file, converted by jax2onnx; its actions are compared before it is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts.errors import ConfigError, DataError, UserError, one_line

from .environments.base import rescale

if TYPE_CHECKING:
    from .policy import Policy

SUFFIX = ".onnx"
ROWS = 64  # observations that both are played on
TOLERANCE = 1e-5  # of the actions' range
INPUT, OUTPUT = "observation", "action"
# Without its dependencies: it declares orbax-checkpoint < 0.11.37, of which nothing is used here.
INSTALL = "pip install onnx onnx-ir onnxruntime && pip install --no-deps jax2onnx dm-pix"


def export_onnx(policy: Policy, file: str | Path) -> Path:
    """Write the mean action, float32 `observation [B, S]` to `action [B, A]` in its own bounds.

    Raises:
        ConfigError: a policy with a memory, or with an offset, which is subtracted in float64.
        DataError: a file that cannot be written, or actions that differ by more than 1e-5 of their
            range.
        UserError: the converter is missing or cannot convert the policy.
    """
    facts = policy.facts
    if facts["memory"] or facts["remembers"] or facts.get("offset"):
        found = "a policy with a memory" if facts["memory"] else "observations less an offset"
        raise ConfigError("export", found, "neither for ONNX", "export a .stablehlo file")
    try:
        import jax2onnx
        import onnxruntime
    except ImportError as error:
        missing = f"{error.name} is not installed" if error.name else one_line(error)
        raise UserError(f"exporting as ONNX: {missing}; {INSTALL}") from error
    low, high = jnp.asarray(policy.action_low), jnp.asarray(policy.action_high)
    agent, actor = policy.saved.agent, policy.saved.actor(policy.seed)

    def act(observation: jax.Array) -> jax.Array:
        action, _ = agent.greedy(actor, jax.random.key(0), observation, ())
        return rescale(action, low, high)

    names: dict[str, Any] = {"input_names": [INPUT], "output_names": [OUTPUT]}
    try:
        model = jax2onnx.to_onnx(act, [("B", policy.observation_size)], **names)
        data = model.SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever the converter raises
        raise UserError(f"exporting as ONNX: jax2onnx: {one_line(error)}") from error
    _compare(policy, session)
    torn = Path(file).with_name(f".{Path(file).name}.{os.getpid()}")
    try:
        torn.write_bytes(data)
        os.replace(torn, file)
    except OSError as error:
        raise DataError(file, "export", error.strerror, "a file that can be written") from None
    finally:
        torn.unlink(missing_ok=True)
    return Path(file)


def _compare(policy: Policy, session: Any) -> None:
    """Play both on normal observations; `DataError` where their actions differ."""
    seen = np.random.default_rng(0).normal(size=(ROWS, policy.observation_size))
    seen = seen.astype(np.float32)
    (found,) = session.run([OUTPUT], {INPUT: seen})
    gap = np.abs(found - policy(seen)) / (policy.action_high - policy.action_low)
    if not (gap.max() <= TOLERANCE):
        expected = f"those of the policy within {TOLERANCE:g} of their range"
        raise DataError("ONNX", "actions", f"{gap.max():.3g} of their range away", expected)
