"""An agent of a file of one's own: one loss exchanged, trained, saved, read where it is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fixtures import smoke

from jaxrl_rollouts import offline, plugins
from jaxrl_rollouts.errors import ConfigError

FILE = '''
from dataclasses import dataclass

import jax.numpy as jnp
import optax

from jaxrl_rollouts.offline.agents.iql import IqlConfig, make_iql, state_value
from jaxrl_rollouts.offline.agents.model_free import ModelFree


def huber(value, nets, normalised, lowest):
    u, tau = lowest - state_value(nets, value, normalised), nets.config.expectile
    return (jnp.where(u < 0, 1 - tau, tau) * optax.huber_loss(u)).mean(), None


@dataclass(frozen=True)
class HuberConfig(IqlConfig):
    """IQL whose state value is a Huber expectile."""

    def make(self, observation_size, action_size, steps=None):
        return make_iql(self, observation_size, action_size, steps, huber)


@dataclass(frozen=True, kw_only=True)
class Huber(HuberConfig, ModelFree):
    """IQL with a Huber expectile."""

    name = "huber"
'''


def test_a_loss_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_TRUSTED", set())
    file = tmp_path / "huber.py"
    file.write_text(FILE)
    plugins.trust(f"{file}:Huber")
    small = ("--hidden-dims", "8", "8", "--steps", "20", "--seeds", "1", "--method")
    folder = smoke("offline", tmp_path / "own", *small, f"{file}:Huber")
    theirs = offline.load_run(smoke("offline", tmp_path / "iql", *small, "iql"))
    with pytest.raises(ConfigError, match=r"huber.py:HuberConfig.*trust"):
        offline.load_policy(folder)
    plugins.trust(f"{file}:HuberConfig")
    mine = offline.load_run(folder)
    assert mine.last.facts["kind"] == f"{file}:HuberConfig"
    # Half of a squared error where it is small: another loss, and so another policy.
    ours, plain = (run.history.curve("value_loss")[1] for run in (mine, theirs))
    assert np.isfinite(ours).all() and (ours != plain).all()
    seen = np.zeros((1, 3), np.float32)
    assert (mine.policy()(seen) != theirs.policy()(seen)).any()
