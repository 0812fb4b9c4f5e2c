"""Settings of agents and methods: every value out of its range is refused under its own name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fixtures import wrong

from jaxrl_rollouts.configs import check
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.experiments.studies.bandit_dqn import DqnConfig
from jaxrl_rollouts.offline import METHODS
from jaxrl_rollouts.offline.agents.cql import CqlConfig
from jaxrl_rollouts.offline.agents.iql import IqlConfig
from jaxrl_rollouts.offline.agents.planner import PlannerConfig
from jaxrl_rollouts.offline.agents.rebrac import RebracConfig
from jaxrl_rollouts.offline.agents.sac import SacConfig
from jaxrl_rollouts.offline.agents.td3_bc import Td3BcConfig
from jaxrl_rollouts.offline.methods.model_based import Rollouts
from jaxrl_rollouts.offline.recurrent.sac import RecurrentSacConfig
from jaxrl_rollouts.offline.synthetic.pgd import PgdConfig

SOFT: dict[str, Any] = dict(num_critics=0, discount=1.0, tau=0.0, initial_alpha=0.0)
CASES: list[tuple[Any, dict[str, Any]]] = [
    (SacConfig(), dict(SOFT, eta=-1.0, hidden_dims=())),
    (SacConfig(num_critics=1), dict(eta=1.0)),
    (CqlConfig(), dict(weight=-1.0, num_actions=0, target_gap=-1.0, bc_steps=-1)),
    (CqlConfig(), dict(critic_hidden_dims=(), num_critics=0, discount=1.0)),
    (Td3BcConfig(), dict(alpha=-1.0, policy_freq=0, hidden_dims=(), policy_noise=-1.0)),
    (RebracConfig(), dict(actor_bc_coef=-1.0, tau=0.0)),
    (IqlConfig(), dict(expectile=1.0, exp_adv_max=0.0, discount=1.0)),
    (RecurrentSacConfig(num_critics=4), dict(SOFT, subset_size=5, head_dims=())),
    (RecurrentSacConfig(), dict(max_grad_norm=0.0, huber=0.0, real_weight=1.5)),
    (PlannerConfig(horizon=3), dict(replan=4, by="nobody", expectile=1.0, history=0)),
    (PlannerConfig(), dict(drop=1.5, guidance=-1.0)),
    (DqnConfig(), dict(head_dims=(), discount=1.0, tau=0.0, epsilon=2.0, max_grad_norm=0.0)),
    (DqnConfig(), dict(huber=0.0, steps=0, utd_ratio=0.0)),
    (PgdConfig(), dict(real_ratio=2.0, guidance_scale=-1.0, lifetime=0)),
    (Rollouts(), dict(length=0, batch_size=0, retain_epochs=0, every=0, early_exit=0)),
    (METHODS["base"](), dict(batch_size=0, real_ratio=1.1)),
    (METHODS["base"](), dict(real_ratio=-0.1)),
    (METHODS["mopo"](), dict(penalty=-1.0)),
    (METHODS["mobile"](), dict(penalty=-1.0, num_samples=0, agent=IqlConfig())),
    (METHODS["combo"](), dict(agent=IqlConfig(), weight=-1.0)),
    (METHODS["cvar"](), dict(dropped=1.0, agent=IqlConfig())),
    (METHODS["leq"](), dict(agent=SacConfig(), real_ratio=1.0)),
    (METHODS["rambo"](), dict(agent=IqlConfig())),
    (METHODS["mobrac"](), dict(agent=SacConfig())),
]


@pytest.mark.parametrize(
    ("good", "change", "setting"),
    [
        pytest.param(good, change, name, id=f"{type(good).__name__}-{name}")
        for good, bad in CASES
        for change, name in wrong(bad)
    ],
)
def test_a_setting_out_of_its_range_is_named(good: Any, change: dict, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: found") as caught:
        check(replace(good, **change))
    assert caught.value.setting == setting
