"""Elites by their open-loop error: members that predict many steps best, not one."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl_rollouts.ensemble import take_members
from jaxrl_rollouts.fitting import Fitter
from jaxrl_rollouts.trees import PyTree

from ..data import Transitions, episodes
from ..environments.terminations import never
from .dynamics import WorldModelParams, learned_dynamics
from .open_loop import open_loop, windows

STEPS, WINDOWS = 50, 200  # of a window at most, and how many


def by_open_loop(
    fitter: Fitter, worlds: WorldModelParams, transitions: Transitions
) -> WorldModelParams:
    """The same members, of which others are the elites.

    A member's error is the median over windows of the dataset, averaged over the steps, along
    logged actions and with mean predictions. Windows are not held out: a split by rows leaves none.

    Args:
        fitter: fitter of the members.
        worlds: leaves `[seeds, ...]`.
        transitions: on the host.
    """
    steps = min(STEPS, int(episodes(transitions).lengths.max()))
    logged = windows(transitions, steps, WINDOWS)
    alone = learned_dynamics(fitter, 1, termination=never, noise="none")

    def chosen(world: WorldModelParams) -> WorldModelParams:
        every, count = world.elites, len(jax.tree.leaves(world.elites)[0])
        if world.others is not None:
            every = jax.tree.map(lambda *x: jnp.concatenate(x), every, world.others)

        def error(member: PyTree) -> jax.Array:
            own = world._replace(elites=jax.tree.map(lambda x: x[None], member), others=None)
            found = open_loop(alone, own, logged, jax.random.key(0)).error
            return jnp.median(found, axis=1).mean()

        order = jnp.argsort(jax.vmap(error)(every))
        others = None if world.others is None else take_members(every, order[count:])
        return world._replace(elites=take_members(every, order[:count]), others=others)

    return jax.jit(jax.vmap(chosen))(worlds)
