"""A trained policy that acts: numpy in and out, in the environment's own units.

    policy = load_policy("runs/pendulum-mixed-mopo-20261120-235905", seed=0)
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=1)
    policy.reset()
    reward, over = 0.0, False
    while not over:
        action = policy(observation, reward)
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
    policy.export("policy.stablehlo")

Only a policy with a memory (NEUBAY, the planner) needs `reset`, and only NEUBAY the reward; others
may be given neither.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from jaxrl_rollouts import exported
from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import DataError, MissingExtraError
from jaxrl_rollouts.exported import Player
from jaxrl_rollouts.record.files import plain
from jaxrl_rollouts.rollouts import where_rows

from .environments.base import rescale
from .method import Agent
from .saved_policies import SavedPolicy, read_policy

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")  # an exported policy runs on each


def load_policy(
    run: str | Path,
    seed: int = 0,
    *,
    best: bool = False,
    deterministic: bool = True,
    key: int = 0,
) -> Policy:
    """The policy in a run's folder, or in a policy's own.

    Args:
        run: the folder.
        seed: index of the training seed.
        best: the policy of the best evaluation instead of the last. It was chosen by
            returns in the true environment, so its return there is an optimistic number.
        deterministic: whether `policy(observation)` is the mean action or a random one.
        key: key of the random actions.

    Raises:
        CheckpointError: there is no policy, there are several, or it cannot be read.
    """
    return Policy(read_policy(run, best=best), seed, deterministic=deterministic, key=key)


class Policy(Player):
    """One training seed of a policy; see `Player` for `policy(observation)` and `reset`.

    Args:
        saved: result of `read_policy` or `policy_of`.
        seed: index of the seed.
        deterministic: whether a call is the mean action or a random one.
        key: key of the random actions.

    Raises:
        CheckpointError: there is no such seed.
    """

    def __init__(
        self, saved: SavedPolicy, seed: int = 0, *, deterministic: bool = True, key: int = 0
    ) -> None:
        self.saved, self.seed = saved, seed
        self._actor, self._draws = saved.actor(seed), 0
        self._key, self.deterministic = as_key(key), deterministic
        facts = {**saved.facts, "seed": seed, "remembers": saved.remembers}
        size, memory = facts["observation_size"], jax.eval_shape(lambda: saved.agent.memory(1))
        if saved.remembers:  # the agent's own observation has the last action and reward, too
            facts["observation_size"] = size - facts["action_size"] - 1
        facts["memory"] = [(x.shape[1:], str(x.dtype)) for x in jax.tree.leaves(memory)]
        bounds = (facts.get("action_low"), facts.get("action_high"))
        make = functools.partial(
            _acting, saved.agent, saved.remembers, *(b and tuple(b) for b in bounds)
        )
        self._greedy, self._random = make(True), make(False)
        super().__init__(self._sampled if not deterministic else self._mean, facts)

    def __repr__(self) -> str:
        facts = self.facts
        sizes = f"{self.observation_size} observation entries, {self.action_size} action entries"
        made = f"{facts.get('method')} trained on {facts.get('dataset')}"
        return f"Policy({made}, seed {facts['seed']} of {facts['seeds']}: {sizes})"

    def sample(self, observation: Any, reward: Any = None) -> np.ndarray:
        """A random action of the policy as it was trained; else as a call."""
        return self._play(self._sampled, observation, reward)

    def export(self, file: str | Path) -> Path:
        """Write the mean action as one file that `load_exported` reads with jax alone.

        Parameters, bounds and memory are inside; it takes any number of rows and runs on CPU, GPU
        and TPU. A file that ends in .onnx is written for ONNX runtimes (`onnx_export`).

        Raises:
            MissingExtraError: the package flatbuffers is not installed.
        """
        if Path(file).suffix == ".onnx":
            from .onnx_export import export_onnx

            return export_onnx(self, file)
        try:
            import flatbuffers  # noqa: F401  (of `jax.export`)
        except ImportError as error:
            raise MissingExtraError("exporting a policy", "flatbuffers", "export") from error
        float32 = np.dtype("float32")
        shapes = [((self.observation_size,), float32), ((), float32), ((), np.dtype(bool))]
        shapes += [((self.action_size,), float32), *self.facts["memory"]]
        (rows,) = jax.export.symbolic_shape("rows")
        inputs = [jax.ShapeDtypeStruct((rows, *shape), kind) for shape, kind in shapes]

        def act(*inputs: jax.Array) -> Any:
            return self._greedy(self._actor, jax.random.key(0), *inputs)

        program = jax.export.export(jax.jit(act), platforms=PLATFORMS)(*inputs)
        version = exported.LESS if self.facts.get("offset") else exported.FORMAT
        code = bytes(program.serialize())
        facts = {**plain(self.facts), "format": version, "sha256": sha256(code).hexdigest()}
        file = Path(file)
        torn = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with zipfile.ZipFile(torn, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(exported.FACTS, json.dumps(facts, indent=1))
                archive.writestr(exported.PROGRAM, code)
            os.replace(torn, file)
        except OSError as error:
            raise DataError(file, "export", error.strerror, "a file that can be written") from None
        finally:
            torn.unlink(missing_ok=True)
        return file

    def _mean(self, *inputs: Any) -> Any:
        return self._greedy(self._actor, self._key, *inputs)

    def _sampled(self, *inputs: Any) -> Any:
        self._draws += 1
        return self._random(self._actor, jax.random.fold_in(self._key, self._draws), *inputs)

    def _wrong(self, key: str, found: Any, expected: str) -> Exception:
        return DataError("policy", key, found, expected)


Limits = tuple[float, ...] | None


@functools.lru_cache(maxsize=32)
def _acting(
    agent: Agent, remembers: bool, low: Limits, high: Limits, deterministic: bool
) -> Callable[..., Any]:
    """An `Act` that takes the actor and a key first; compiled once for all seeds of a policy."""
    choose = agent.greedy if deterministic else agent.policy

    @jax.jit
    def act(
        actor: Any,
        key: jax.Array,
        observation: jax.Array,
        reward: jax.Array,
        fresh: jax.Array,
        last: jax.Array,
        *memory: jax.Array,
    ) -> tuple[jax.Array, ...]:
        start = agent.memory(observation.shape[0])
        kept = where_rows(fresh, start, jax.tree.unflatten(jax.tree.structure(start), memory))
        if remembers:  # as `recurrent.histories` shows it: zeros where an episode begins
            token = jnp.concatenate([last, reward[:, None]], -1)
            observation = jnp.concatenate([observation, jnp.where(fresh[:, None], 0.0, token)], -1)
        chosen, kept = choose(actor, key, observation, kept)
        unit = jnp.clip(chosen, -1.0, 1.0)
        own = unit if low is None or high is None else rescale(unit, _row(low), _row(high))
        return own, unit, *jax.tree.leaves(kept)

    return act


def _row(bound: tuple[float, ...]) -> jax.Array:
    return jnp.asarray(bound, jnp.float32)
