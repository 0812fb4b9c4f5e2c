"""What a model-based method heeds of the settings, and what is chosen for it on a dataset."""

from __future__ import annotations

from dataclasses import replace

from jaxrl_rollouts.ensemble import max_aleatoric
from jaxrl_rollouts.errors import ConfigError

from ..agents.sac import SacConfig
from ..data import Dataset
from ..methods.published import published
from ..methods.registry import make_method
from .config import StudyConfig


def check_settings(name: str, config: StudyConfig, dataset: Dataset | None = None) -> None:
    """Hold a method to what it heeds of the settings, needs of the world models and finds in data.

    Raises:
        ConfigError: the agent's number of critics or their eta, which the method sets itself,
            a penalty on what the configured world models do not predict, or a least target that
            nothing in the dataset is worth.
    """
    if dataset is not None:
        config = tuned(name, dataset.name, config)
    method = make_method(name, config.agent, config.methods)
    for setting in ("num_critics", "eta"):
        asked, has = getattr(config.agent, setting), getattr(method.agent, setting)
        if asked not in (has, getattr(SacConfig(), setting)):
            own = hasattr(getattr(config.methods, name, None), setting)
            where = f"; it is study.methods.{name}.{setting}" if own else ""
            expected = f"nothing here: {name} has {has} by itself{where}"
            raise ConfigError(f"study.agent.{setting}", asked, expected)
    if config.ensemble.variance != "row" and method.disagreement is max_aleatoric:
        raise ConfigError(
            "study.ensemble.variance",
            config.ensemble.variance,
            f"row: {name} penalises the deviation that is predicted, here the same for every row",
        )
    least = method.agent.min_target
    if dataset is not None and least is not None:
        most = float(dataset.transitions.rewards.max()) / (1 - method.agent.discount)
        if most <= least:
            own = hasattr(getattr(config.methods, name, None), "min_target")
            raise ConfigError(
                f"study.methods.{name}.min_target" if own else "study.agent.min_target",
                least,
                f"less than {most:,.4g}, what the largest reward of {dataset.name} is worth for "
                "ever: every target would be cut there",
                "None leaves targets as they are",
            )


def tuned(name: str, dataset: str, config: StudyConfig) -> StudyConfig:
    """`config` with what is chosen for a method on a dataset."""
    if config.tuning == "shared":
        return config
    methods, horizon = published(name, dataset, config.methods, config.rollouts.horizon)
    return replace(config, methods=methods, rollouts=replace(config.rollouts, horizon=horizon))


def tuned_to_own(name: str, dataset: str, config: StudyConfig) -> StudyConfig:
    """`tuned`, for `train_in` dynamics of your own.

    Raises:
        ConfigError: a penalty in units of what fitted world models report.
    """
    config = tuned(name, dataset, config)
    if make_method(name, config.agent, config.methods).unit != "raw":
        raise ConfigError(
            f"study.methods.{name}.unit",
            "mean",
            "raw with dynamics of your own",
            f"{type(getattr(config.methods, name)).__name__}(penalty=..., unit='raw'): the penalty "
            "is then of what they report",
        )
    return config
