"""Time APEBench's own training and rollout; run by `pde_speed`.

`serving.py` says how it is asked. This file imports nothing of ours but what lies beside it.

The trainer is the one APEBench's scenarios call (trainax's), for one seed, without its progress
bar and what it prepares; the rollout is the one of its tests, under one `jit`, which its tests do
without. Both are kinder to it than a call of the scenario.
"""

from __future__ import annotations

import time
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
    found = np.load(path)
    convs, norms = layers(net)

    def parts(net: Any) -> list[Any]:
        return [x for kind in layers(net) for layer in kind for x in (layer.weight, layer.bias)]

    values = []
    for i in range(len(convs)):
        kernel = found[f"PeriodicConv_{i}/kernel"]
        values += [kernel.transpose(2, 1, 0), found[f"PeriodicConv_{i}/bias"][:, None]]
    for i in range(len(norms)):
        values += [found[f"GroupNorm_{i}/scale"], found[f"GroupNorm_{i}/bias"]]
    for old, new in zip(parts(net), values, strict=True):
        assert old.shape == new.shape, (old.shape, new.shape)
    return eqx.tree_at(parts, net, [jnp.asarray(v) for v in values])


class Study:
    """One scenario, its trainer and its rollout."""

    def __init__(self, settings: dict[str, Any]) -> None:
        updates = WARM + settings["updates"]
        self.scenario = apebench.scenarios.difficulty.KuramotoSivashinsky(
            num_points=settings["points"], num_train_samples=settings["trajectories"],
            train_temporal_horizon=settings["frames"], batch_size=settings["batch"],
            num_test_samples=1, test_temporal_horizon=1,
            optim_config=f"adam;{updates};warmup_cosine;0.0;1e-3;{max(updates // 10, 1)}",
        )  # fmt: skip
        self.config = (
            f"Dil;{settings['dilation_factor']};{settings['width']};{settings['blocks']};gelu"
        )
        net = self.scenario.get_neural_stepper(
            task_config="predict", network_config=self.config, key=jax.random.PRNGKey(0)
        )
        self.net = loaded(net, settings["weights"])
        trainer = self.scenario.get_trainer(train_config="one")
        self.begin = 0.0
        self.trainer = eqx.tree_at(lambda t: t.callback_fn, trainer, self.note_begin)
        steps = settings["steps"]
        self.roll = eqx.filter_jit(
            lambda net, start: jax.vmap(ex.rollout(net, steps, include_init=False))(start)  # pyright: ignore
        )
        shape = (settings["fields"], 1, settings["points"])
        self.start = jax.random.normal(jax.random.PRNGKey(1), shape)

    def note_begin(self, update: int, net: Any, batch: jax.Array) -> dict[str, Any]:
        """The trainer's callback. What it prepares, and may compile, in every call is not timed."""
        del batch
        if update == WARM:
            jax.block_until_ready(eqx.filter(net, eqx.is_array))
            self.begin = time.perf_counter()
        return {}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        kind = question["kind"]
        if kind == "describe":
            versions = {"apebench": apebench.__version__, "apebench's jax": jax.__version__}
            return {"parameters": pdequinox.count_parameters(self.net), **versions}
        if kind == "apply":  # on our weights: the same network?
            return {"said": jax.vmap(self.net)(jnp.asarray(question["fields"])).tolist()}
        self.begin = time.perf_counter()
        if kind == "train":
            key = jax.random.PRNGKey(2)
            done = self.trainer(self.net, key, record_loss_every=100, spawn_tqdm=False)
            jax.block_until_ready(eqx.filter(done, eqx.is_array))
        else:
            jax.block_until_ready(self.roll(self.net, self.start))
        return {"seconds": time.perf_counter() - self.begin}


if __name__ == "__main__":
    serve(Study)
