"""A dataset in, rows of a diffusion model out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.diffusion import GuidanceConfig, SamplerConfig, small_training
from jaxrl_rollouts.errors import ConfigError, DataError
from jaxrl_rollouts.offline.agents.bc import BcConfig, make_bc
from jaxrl_rollouts.offline.agents.cql import CqlConfig, make_cql
from jaxrl_rollouts.offline.agents.iql import Iql
from jaxrl_rollouts.offline.behaviours.mixed import pendulum_mixed
from jaxrl_rollouts.offline.data import Dataset, episodes
from jaxrl_rollouts.offline.methods.mopo import Mopo
from jaxrl_rollouts.offline.methods.pgd import Pgd
from jaxrl_rollouts.offline.methods.synther import Synther
from jaxrl_rollouts.offline.recipes import recipe
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig
from jaxrl_rollouts.offline.synthetic.synthesis import synthesise
from jaxrl_rollouts.record.context import RunContext
from jaxrl_rollouts.record.folder import RunFolder

SYNTHER, PGD = recipe("synther", "smoke"), recipe("pgd", "smoke")
KEY = jax.random.key(0)


def dataset() -> Dataset:
    rows = pendulum_mixed(jax.random.key(0), 400)
    return Dataset("pendulum-mixed", rows, None, Path("(made)"), "", {"format": "made"})


def test_small_budgets_draw_transitions_with_half_the_calls() -> None:
    synther, pgd = recipe("synther", "small"), recipe("pgd", "small")
    assert synther.real_ratio == 0.5
    assert synther.model.sampler.calls == 32 and synther.model.sampler.eta == 1.0
    assert pgd.refresh.sampler.calls == 63 and pgd.refresh.sampler.method == "heun"
    assert synther.model.training == small_training(10_000, 256)
    assert pgd.training == small_training(5000, 64)


def test_rows_of_synther_stand_alone_and_are_kept(tmp_path: Path) -> None:
    context = RunContext(RunFolder.create(tmp_path, "toy", "test", SYNTHER, "x"), progress=False)
    made = synthesise(dataset(), SYNTHER, 50, context=context)
    assert len(made) == 50 and made.name == "pendulum-mixed-synther"
    facts = {"synthetic": "synther", "made_from": "pendulum-mixed"}
    assert facts.items() <= made.attributes.items() and made.environment == "pendulum-mixed"
    assert (episodes(made.transitions).lengths == 1).all()
    assert np.abs(made.transitions.actions).max() <= 1
    again = synthesise(dataset(), SYNTHER, 50, context=context)
    for a, b in zip(made.transitions, again.transitions, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_rows_of_windows_follow_each_other_and_the_policy() -> None:
    agent = make_bc(BcConfig(hidden_dims=(8,)), 3, 1)
    actor = agent.init(KEY).actor
    guidance, sampler = GuidanceConfig(rule="calibrated"), SamplerConfig(8, churn=0.0)
    refresh = PgdConfig(guidance, guidance_scale=10.0, sampler=sampler)
    pgd = replace(PGD, refresh=refresh)
    plain = synthesise(dataset(), pgd, 50).transitions
    guided = synthesise(dataset(), pgd, 50, policy=(agent, actor)).transitions
    for rows in (plain, guided):
        assert len(rows.rewards) == 50
        within = ~rows.truncations[:-1]
        assert within.sum() == 33
        np.testing.assert_array_equal(
            rows.next_observations[:-1][within], rows.observations[1:][within]
        )

    def gap(rows: Any) -> float:
        wanted, _ = agent.greedy(actor, KEY, rows.observations, ())
        return float(np.square(rows.actions - np.asarray(wanted)).mean())

    assert gap(guided) < gap(plain)


def test_what_cannot_be_made_is_named() -> None:
    with pytest.raises(ConfigError, match="method: found 'Pgd'.*did you mean pgd"):
        synthesise(dataset(), "Pgd")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="method: found 'pgd', expected settings"):
        synthesise(dataset(), "pgd")  # type: ignore[arg-type]
    for kind, agent in (
        (SYNTHER, make_bc(BcConfig(), 3, 1)),
        (PGD, make_cql(CqlConfig(), 3, 1)),
    ):
        with pytest.raises(ConfigError, match="policy"):
            synthesise(dataset(), kind, policy=(agent, None))
    with pytest.raises(DataError, match="episodes"):
        synthesise(dataset(), replace(PGD, length=300))
    for wrong, setting in (
        (Synther(real_ratio=2.0), "real_ratio"),
        (Pgd(length=1), "length"),
        (Synther(agent=Mopo()), "agent: found 'mopo', expected a method without"),
        (Synther(agent=Iql(steps=77)), r"agent.steps: found 77, expected steps 1000000 beside"),
    ):
        with pytest.raises(ConfigError, match=setting):
            check(wrong)


def test_an_agents_own_length_is_not_read_silently() -> None:
    check(Synther(agent=Iql(steps=77), steps=77))
    check(Pgd(agent=Iql(), steps=77))
