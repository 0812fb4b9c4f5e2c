"""A gated recurrent unit over a tape of episodes, differentiated by hand.

What does not depend on the token before is done for the whole tape at once: the inputs' share of
the gates, and in the gradient everything but the recurrence itself, the sum over tokens that is the
kernel's gradient above all. On a CPU a gradient step is twice as fast as with the scanned cell.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PyTree = Any


class Gates(NamedTuple):
    """Reset, update and candidate of a token, and the recurrent share of the last; `[..., H]`."""

    reset: jax.Array
    update: jax.Array
    candidate: jax.Array
    share: jax.Array


def gru_scan(params: PyTree, x: jax.Array, starts: jax.Array, before: jax.Array) -> jax.Array:
    """States of `nn.GRUCell` along a tape, from zero where an episode starts.

    Args:
        params: the cell's.
        x: `[L, D]`.
        starts: `[L]` bool.
        before: `[H]`, the state before the first token.

    Returns:
        `[L, H]`.
    """
    kernel = jnp.concatenate([params[name]["kernel"] for name in ("ir", "iz", "in")], 1)
    bias = jnp.concatenate([params[name]["bias"] for name in ("ir", "iz", "in")])
    back = jnp.concatenate([params[name]["kernel"] for name in ("hr", "hz", "hn")], 1)
    return _recur(back, params["hn"]["bias"], x @ kernel + bias, starts, before)


def _gates(kernel: jax.Array, bias: jax.Array, given: jax.Array, h: jax.Array) -> Gates:
    reset, update, candidate = jnp.split(given, 3, -1)
    to_reset, to_update, share = jnp.split(h @ kernel, 3, -1)
    share = share + bias
    reset, update = jax.nn.sigmoid(reset + to_reset), jax.nn.sigmoid(update + to_update)
    return Gates(reset, update, jnp.tanh(candidate + reset * share), share)


@jax.custom_vjp
def _recur(
    kernel: jax.Array, bias: jax.Array, given: jax.Array, starts: jax.Array, before: jax.Array
) -> jax.Array:
    """`kernel` is `[H, 3 H]`, `bias` the candidate's; `given` `[L, 3 H]` is the inputs' share."""

    def one(h: jax.Array, row: tuple) -> tuple[jax.Array, jax.Array]:
        given, start = row
        h = jnp.where(start, 0.0, h)
        gates = _gates(kernel, bias, given, h)
        h = (1.0 - gates.update) * gates.candidate + gates.update * h
        return h, h

    return jax.lax.scan(one, before, (given, starts))[1]


def _forward(
    kernel: jax.Array, bias: jax.Array, given: jax.Array, starts: jax.Array, before: jax.Array
) -> tuple[jax.Array, tuple]:
    h = _recur(kernel, bias, given, starts, before)
    return h, (kernel, bias, given, starts, before, h)


def _backward(kept: tuple, above: jax.Array) -> tuple:
    kernel, bias, given, starts, before, h = kept
    previous = jnp.where(starts[:, None], 0.0, jnp.concatenate([before[None], h[:-1]]))
    gates = _gates(kernel, bias, given, previous)
    # What a token's state passes on to what the gates are made of, per unit of its own slope.
    to_candidate = (1.0 - gates.update) * (1.0 - jnp.square(gates.candidate))
    to_reset = to_candidate * gates.share * gates.reset * (1.0 - gates.reset)
    to_update = (previous - gates.candidate) * gates.update * (1.0 - gates.update)
    passed = jnp.concatenate([to_reset, to_update, to_candidate * gates.reset], -1)

    def one(later: jax.Array, row: tuple) -> tuple[jax.Array, jax.Array]:
        above, update, passed, start = row
        slope = above + later
        earlier = slope * update + (jnp.tile(slope, 3) * passed) @ kernel.T
        return jnp.where(start, 0.0, earlier), slope

    rows = (above, gates.update, passed, starts)
    first, slopes = jax.lax.scan(one, jnp.zeros_like(before), rows, reverse=True)
    on_back = jnp.tile(slopes, (1, 3)) * passed
    on_given = jnp.concatenate([slopes * to_reset, slopes * to_update, slopes * to_candidate], -1)
    size = before.shape[0]
    return previous.T @ on_back, on_back[:, 2 * size :].sum(0), on_given, None, first


_recur.defvjp(_forward, _backward)
