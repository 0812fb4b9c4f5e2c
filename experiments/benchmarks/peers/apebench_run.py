"""Time APEBench's own training and rollout; run by `pde_speed`.

The trainer is the one APEBench's scenarios call (trainax's), for one seed, without its progress
bar and what it prepares; the rollout is the one of its tests, under one `jit`, which its tests do
without. Both are kinder to it than a call of the scenario.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import apebench
import equinox as eqx
import exponax as ex
import jax
import jax.numpy as jnp
import numpy as np
import pdequinox
from serving import serve

WARM = 3  # updates before the clock starts


def layers(net: Any) -> tuple[list[Any], list[Any]]:
    """Its convolutions and its normalisations, in the order they are applied."""
    convs = [net.lifting, *(c for b in net.blocks for c in b.conv_layers), net.projection]
    return convs, [n for b in net.blocks for n in b.norm_layers]


def loaded(net: Any, path: str) -> Any:
    """`net` with weights as `pde_speed` writes them, in flax's names and layouts."""
    weights, (convs, norms) = np.load(path), layers(net)
    values = []
    for i in range(len(convs)):
        kernel, bias = (weights[f"PeriodicConv_{i}/{name}"] for name in ("kernel", "bias"))
        values += [kernel.transpose(2, 1, 0), bias[:, None]]
    for i in range(len(norms)):
        values += [weights[f"GroupNorm_{i}/scale"], weights[f"GroupNorm_{i}/bias"]]

    def parts(net: Any) -> list[Any]:
        return [x for kind in layers(net) for layer in kind for x in (layer.weight, layer.bias)]

    for old, new in zip(parts(net), values, strict=True):
        assert old.shape == new.shape, (old.shape, new.shape)
    return eqx.tree_at(parts, net, [jnp.asarray(v) for v in values])


class Study:
    """One scenario, its trainer and its rollout."""

    def __init__(self, s: SimpleNamespace) -> None:
        updates = WARM + s.updates
        scenario = apebench.scenarios.difficulty.KuramotoSivashinsky(
            num_points=s.points,
            num_train_samples=s.trajectories,
            train_temporal_horizon=s.frames,
            batch_size=s.batch,
            num_test_samples=1,
            test_temporal_horizon=1,
            optim_config=f"adam;{updates};warmup_cosine;0.0;1e-3;{max(updates // 10, 1)}",
        )
        network = f"Dil;{s.dilation_factor};{s.width};{s.blocks};gelu"
        net = scenario.get_neural_stepper(
            task_config="predict", network_config=network, key=jax.random.PRNGKey(0)
        )
        self.net, self.begin = loaded(net, s.weights), 0.0
        trainer = scenario.get_trainer(train_config="one")
        self.trainer = eqx.tree_at(lambda t: t.callback_fn, trainer, self.note_begin)
        self.roll = eqx.filter_jit(
            lambda net, start: jax.vmap(ex.rollout(net, s.steps, include_init=False))(start)  # pyright: ignore
        )
        self.start = jax.random.normal(jax.random.PRNGKey(1), (s.fields, 1, s.points))

    def note_begin(self, update: int, net: Any, batch: jax.Array) -> dict[str, Any]:
        """The trainer's callback. What it prepares, and may compile, in every call is not timed."""
        del batch
        if update == WARM:
            jax.block_until_ready(eqx.filter(net, eqx.is_array))
            self.begin = time.perf_counter()
        return {}

    def describe(self) -> dict[str, Any]:
        versions = {"apebench": apebench.__version__, "apebench's jax": jax.__version__}
        return {"parameters": pdequinox.count_parameters(self.net), **versions}

    def said(self, fields: list) -> list:
        return jax.vmap(self.net)(jnp.asarray(fields)).tolist()

    def seconds(self, kind: str) -> float:
        self.begin, key = time.perf_counter(), jax.random.PRNGKey(2)
        if kind == "train":
            done = self.trainer(self.net, key, record_loss_every=100, spawn_tqdm=False)
            jax.block_until_ready(eqx.filter(done, eqx.is_array))
        else:
            jax.block_until_ready(self.roll(self.net, self.start))
        return time.perf_counter() - self.begin


if __name__ == "__main__":
    serve(Study)
