"""Every agent that learns from transitions alone, by its configuration or by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data import Transitions
from .agent import Agent
from .iql import IqlConfig, make_iql
from .rebrac import RebracConfig, make_rebrac, with_next_actions
from .sac import SacConfig, make_sac
from .td3_bc import Td3BcConfig, make_td3_bc

AgentConfig = SacConfig | Td3BcConfig | IqlConfig | RebracConfig

CONFIGS: Mapping[str, type] = {
    "sac": SacConfig, "td3_bc": Td3BcConfig, "iql": IqlConfig, "rebrac": RebracConfig,
}  # fmt: skip
_MAKERS: Mapping[type, Any] = {
    SacConfig: make_sac, Td3BcConfig: make_td3_bc, IqlConfig: make_iql, RebracConfig: make_rebrac,
}  # fmt: skip


def agent_name(config: AgentConfig) -> str:
    """Which of `CONFIGS` a configuration is of."""
    return next(name for name, kind in CONFIGS.items() if type(config) is kind)


def make_agent(config: AgentConfig, observation_size: int, action_size: int) -> Agent:
    """The agent of a configuration.

    Raises:
        ConfigError: a setting is out of range.
    """
    return _MAKERS[type(config)](config, observation_size, action_size)


def rows_for(config: AgentConfig, transitions: Transitions) -> Any:
    """The dataset with what this agent needs besides; plain `Transitions` for most."""
    if isinstance(config, RebracConfig) and config.critic_penalty > 0:
        return with_next_actions(transitions)
    return transitions
