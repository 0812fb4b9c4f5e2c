"""The one rollout: a transition is applied step after step inside a single compiled scan.

A policy in a learned ensemble, a policy in a true vectorised environment and a field that no
action drives are the same loop with different arguments:

==========================  ===========================  ==================  ====================
what is rolled              `Model.step`                 `policy`            ending
==========================  ===========================  ==================  ====================
policy in an ensemble       one member per row           the agent           horizon or threshold
policy in an environment    the simulator                the agent           termination, time
field (PDE emulator)        the emulator                 none                horizon
==========================  ===========================  ==================  ====================

Shapes: `B` rows roll side by side (leading axis of every state leaf), `T` is the horizon. Results
are time-major, `[T, B, ...]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import chex
import jax
import jax.numpy as jnp

from .trees import PyTree


class StepResult(NamedTuple):
    """What a transition reports besides the next state; every field is `[B]`."""

    reward: jax.Array  # float32
    terminated: jax.Array  # bool: the episode is over; no value follows
    truncated: jax.Array  # bool: the episode was cut (time limit); a value would follow
    uncertainty: jax.Array  # float32: how uncertain the model is here; 0 for true dynamics


def step_result(batch: int, **fields: jax.Array) -> StepResult:
    """A `StepResult` for `batch` rows whose unnamed fields are zero or False."""
    zero, no = jnp.zeros((batch,), jnp.float32), jnp.zeros((batch,), bool)
    return StepResult(zero, no, no, zero)._replace(**fields)


class StepFunction(Protocol):
    """See `Model.step`; positional arguments only."""

    def __call__(
        self, params: Any, key: jax.Array, state: Any, action: Any, member: Any, /
    ) -> tuple[Any, StepResult]: ...


def _identity(state: PyTree) -> PyTree:
    return state


class Model(NamedTuple):
    """A transition as a pure function.

    Attributes:
        step: `(params, key, state, action, member) -> (next_state, StepResult)`, batched over
            rows. `action` is None without a policy, `member` (`[B]` int32) without `members`.
        observe: `state -> observation`, what the policy sees and what is recorded.
    """

    step: StepFunction
    observe: Callable[[PyTree], PyTree] = _identity


class Members(NamedTuple):
    """The assignment of ensemble members to rows.

    The sample is balanced: each of the `E` choices has `ceil(B / E)` rows at most, so an ensemble
    can evaluate every member on its own rows only (`ensemble.apply_assigned`).

    Attributes:
        choices: `[E]` int32 member indices to draw from (the elites, say).
        per: sample once per trajectory, or at each step.
        shuffle: False ties row `i` to `choices[i % E]` (NEUBAY); needs
            `per="trajectory"`.
    """

    choices: jax.Array
    per: Literal["trajectory", "step"] = "step"
    shuffle: bool = True


class Step(NamedTuple):
    """One recorded transition; `[B, ...]` while rolling, `[T, B, ...]` in a `Trajectory`.

    `truncations` is true on the last valid step of a row that did not terminate, whatever cut it:
    the horizon, the threshold or the environment's own time limit. Rows past their end are zero.
    """

    observations: PyTree
    actions: PyTree
    rewards: jax.Array
    next_observations: PyTree
    terminations: jax.Array
    truncations: jax.Array
    uncertainties: jax.Array
    members: PyTree
    valid: jax.Array


class Trajectory(NamedTuple):
    """Result of `rollout`.

    Attributes:
        steps: what `record` kept of each `Step`, stacked over time: `[T, B, ...]`.
        valid: `[T, B]` bool; True where the row was still alive before the step.
        state: the last state of each row, `[B, ...]`.
        memory: the policy's last memory.
    """

    steps: Any
    valid: jax.Array
    state: PyTree
    memory: PyTree

    @property
    def lengths(self) -> jax.Array:
        """Valid steps per row, `[B]` int32."""
        return self.valid.sum(0, dtype=jnp.int32)


def draw_members(members: Members, key: jax.Array, batch: int) -> jax.Array:
    """Draw `[batch]` member indices, each choice at most `ceil(batch / E)` times."""
    count = members.choices.shape[0]
    # Tiled, then permuted, not drawn with replacement: a member's rows then have a static bound.
    tiled = jnp.tile(members.choices, -(-batch // count))
    return (jax.random.permutation(key, tiled) if members.shuffle else tiled)[:batch]


def where_rows(mask: jax.Array, left: PyTree, right: PyTree) -> PyTree:
    """Row-wise select over pytrees; `mask` is `[B]`, leaves are `[B, ...]`."""

    def select(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(select, left, right)


def _mask_rows(mask: jax.Array, tree: PyTree) -> PyTree:
    # Zeros, not the last values: sums over time need no mask then.
    return where_rows(mask, tree, jax.tree.map(jnp.zeros_like, tree))


def rollout(
    model: Model,
    params: PyTree,
    start: PyTree,
    key: jax.Array,
    *,
    horizon: int,
    policy: Callable[[PyTree, jax.Array, PyTree, PyTree], tuple[PyTree, PyTree]] | None = None,
    policy_params: PyTree = None,
    memory: PyTree = (),
    members: Members | None = None,
    threshold: jax.Array | float | None = None,
    stop_at_termination: bool = True,
    early_exit: int | None = None,
    record: Callable[[Step], Any] = _identity,
) -> Trajectory:
    """Roll `model` forward from `start` for at most `horizon` steps.

    Args:
        model: the transition.
        params: its parameters, handed to `model.step` unchanged.
        start: `[B, ...]` start states.
        key: consumed. Step `t` uses `fold_in(key, t)`, so the first `n` steps of a rollout do
            not depend on how long it is.
        horizon: number of steps `T`, at least 1.
        policy: `(policy_params, key, observation, memory) -> (action, memory)`; None rolls a
            field without actions.
        policy_params: handed to `policy` unchanged.
        memory: the policy's recurrent state for `B` rows, frozen once a row has ended.
        members: the ensemble member of each row; None for a single model.
        threshold: a row stops once a step's uncertainty exceeds it. That step is kept, marked
            truncated and meant to be bootstrapped from (NEUBAY).
        stop_at_termination: False rolls on through terminations (open-loop error studies).
        early_exit: check after every so many steps whether all rows have ended, and stop then.
            Saves time when rows end long before the horizon.
        record: what to keep of each step, `lambda step: step.next_observations` for a field.

    Returns:
        A `Trajectory`. Rows are frozen after their end: `record` sees a step of zeros, and where
        `early_exit` has stopped zeros stand for what it would have made of it.

    Raises:
        ValueError: `horizon` or `early_exit` below 1, or leaves of `start` that disagree on `B`.
    """
    _check(horizon, early_exit, members)
    batch = jax.tree.leaves(start)[0].shape[0]
    chex.assert_tree_shape_prefix(start, (batch,), exception_type=ValueError)
    # The trajectory's member has a key of its own: step keys stay equal with and without members.
    member_key, key = jax.random.split(key)
    fixed = draw_members(members, member_key, batch) if members is not None else None
    if members is not None and members.per == "trajectory":
        members = None

    def advance(carry: tuple, t: jax.Array) -> tuple[tuple, tuple]:
        state, memory, alive = carry
        # Keyed by the step's number: a prefix does not depend on the horizon.
        policy_key, step_key, draw_key = jax.random.split(jax.random.fold_in(key, t), 3)
        observation = model.observe(state)
        action, next_memory = None, memory
        if policy is not None:
            action, next_memory = policy(policy_params, policy_key, observation, memory)
        member = fixed if members is None else draw_members(members, draw_key, batch)
        next_state, out = model.step(params, step_key, state, action, member)
        chex.assert_shape(list(out), (batch,))
        cut = _cut(out, t == horizon - 1, threshold)
        ended = cut | (out.terminated if stop_at_termination else False)
        step = Step(
            observation,
            action,
            out.reward,
            model.observe(next_state),
            out.terminated,
            cut & ~out.terminated,
            out.uncertainty,
            member,
            alive,
        )
        # Frozen, not rolled on: NaN of a diverging model would spread through gradients.
        state = where_rows(alive, next_state, state)
        memory = where_rows(alive, next_memory, memory)
        return (state, memory, alive & ~ended), (record(_mask_rows(alive, step)), alive)

    carry = (start, memory, jnp.ones((batch,), bool))
    # A plain scan can be differentiated in reverse; the loop with an exit cannot.
    if early_exit is None or early_exit >= horizon:
        (state, memory, _), (steps, valid) = jax.lax.scan(advance, carry, jnp.arange(horizon))
        return Trajectory(steps, valid, state, memory)
    return _chunked(advance, carry, horizon, early_exit)


def _cut(out: StepResult, last: jax.Array, threshold: jax.Array | float | None) -> jax.Array:
    """`[B]` bool: what a row is truncated by, if it did not terminate."""
    # The horizon is a truncation: a value still follows, so targets bootstrap there.
    cut = out.truncated | last
    return cut if threshold is None else cut | (out.uncertainty > threshold)


def _check(horizon: int, early_exit: int | None, members: Members | None) -> None:
    if horizon < 1:
        raise ValueError(f"horizon: found {horizon}, expected at least 1")
    if early_exit is not None and early_exit < 1:
        raise ValueError(f"early_exit: found {early_exit}, expected at least 1")
    if members is not None and not members.shuffle and members.per == "step":
        raise ValueError("members: shuffle=False ties rows for a whole trajectory, not per step")


def _chunked(advance: Callable, carry: tuple, horizon: int, chunk: int) -> Trajectory:
    """The same scan in pieces of `chunk` steps, left as soon as no row is alive."""
    count = -(-horizon // chunk)
    # Shapes only: `record` may keep anything, and a step computed for them would be thrown away.
    shapes = jax.eval_shape(advance, carry, jnp.int32(0))[1]
    # Whole chunks: the last one may run past the horizon, and is cut off at the end.
    buffers = jax.tree.map(lambda s: jnp.zeros((count * chunk, *s.shape), s.dtype), shapes)

    def body(loop: tuple) -> tuple:
        index, carry, buffers = loop
        # Absolute times, as in the plain scan, so that both give the same numbers.
        times = index * chunk + jnp.arange(chunk)
        carry, rows = jax.lax.scan(advance, carry, times)
        buffers = jax.tree.map(
            lambda b, r: jax.lax.dynamic_update_slice_in_dim(b, r, index * chunk, 0), buffers, rows
        )
        return index + 1, carry, buffers

    def unfinished(loop: tuple) -> jax.Array:
        return (loop[0] < count) & loop[1][2].any()

    _, (state, memory, _), (steps, valid) = jax.lax.while_loop(
        unfinished, body, (jnp.int32(0), carry, buffers)
    )
    steps, valid = jax.tree.map(lambda x: x[:horizon], (steps, valid))
    return Trajectory(steps, valid, state, memory)
