"""A dataset and an agent that needs no world model: train, evaluate, save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.errors import ConfigError
from jaxrl_rollouts.loop import evenly
from jaxrl_rollouts.record.context import RunContext

from ..agents.agent import Learner
from ..agents.model_free import make_model_free, rows_feed
from ..agents.registry import (
    AGENTS,
    AgentConfig,
    AgentConfigs,
    agent_name,
    make_agent,
    rows_for,
)
from ..data import sample_batch, to_device
from ..synthetic.pgd import PgdData, make_pgd
from ..synthetic.relabel import By, RelabelConfig, Relabeller, fit_relabeller
from ..synthetic.synther import MixedData, mixing
from ..synthetic.synthesis import SyntheticConfig, fit_windows, synthesise
from ..training import train_learner
from ..worlds.dynamics import Termination
from ..worlds.endings import TerminationConfig
from .config import StudyConfig, keys_of
from .outcome import Outcome, finish, judge
from .setting import termination_of, verify_checksum
from .source import Setting, slug

MODEL_FREE = tuple(AGENTS)
Data = Literal["real", "synther", "pgd"]
DATA: tuple[Data, ...] = ("real", "synther", "pgd")
TOLD: Mapping[By, str] = {
    "sampled": "",
    "ensemble": " What follows a state and an action is told by members of a world model.",
    "model": " What follows a state and an action is told by a single network.",
    "inverse": " Actions are those that an inverse model finds behind the changes.",
}


@dataclass(frozen=True)
class ModelFreeStudyConfig:
    """Agents and their budget; seeds, evaluations and episodes are the `StudyConfig`'s.

    Attributes:
        agents: settings of single agents.
        batch_size: transitions in a gradient step.
        updates: gradient steps in all, rounded to whole iterations.
        per_iteration: gradient steps of one iteration of the loop at most: the grain of
            evaluations, checkpoints and the log.
    """

    agents: AgentConfigs = field(default_factory=AgentConfigs)
    batch_size: int = positive(256)
    updates: int = positive(1_000_000)
    per_iteration: int = positive(1000)

    def of(self, name: str) -> AgentConfig:
        """The agent called `name`, one of `MODEL_FREE`."""
        return getattr(self.agents, name)


def cadence(updates: int, most: int, period: int, evaluations: int = 1) -> tuple[int, int]:
    """Iterations, and gradient steps of each, that come as near to `updates` as they can.

    Args:
        updates: gradient steps in all.
        most: of an iteration.
        period: of the agent: an iteration holds whole periods.
        evaluations: that there should be room for.
    """
    per = min(most, max(updates // evaluations, 1))
    per = max(per // period, 1) * period
    return max(round(updates / per), 1), per


def train_model_free(
    name: str,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    context: RunContext | None,
    data: Data = "real",
    synthetic: SyntheticConfig | None = None,
    stage: str = "",
) -> Outcome:
    """Train one agent on the dataset, or on rows made of it, and play its policy.

    Args:
        name: of the agent.
        setting: dataset and environment.
        study: seeds and evaluation.
        config: agents and length.
        context: of the run.
        data: `real`; or `synther`, rows of a diffusion model drawn once; or `pgd`, windows drawn
            again and again near the policy that is learning.
        synthetic: diffusion models of the last two.
        stage: folder in the run; the dataset's name and the agent's unless given.

    Raises:
        ConfigError: guided diffusion for an agent without a normal policy.
    """
    verify_checksum(setting.dataset, context)
    chosen = given = config.of(name)
    stage = stage or f"{slug(setting.dataset.name)}-{name}"
    train_key, play_key = keys_of(study.seed)
    if data == "real":
        learner, rows, iterations = on_rows(chosen, setting, study, config)
    else:
        chosen, stage = AGENTS[name].alone(chosen), f"{stage}-{data}"
        prepare = on_synther if data == "synther" else on_pgd
        learner, rows, iterations, setting = prepare(
            chosen, setting, study, config, synthetic or SyntheticConfig(), context
        )
        lost = [f.name for f in fields(chosen) if getattr(chosen, f.name) != getattr(given, f.name)]
        if lost:
            note = f" Without {', '.join(lost)}: nobody knows what follows a made-up row."
            setting = setting._replace(synthetic=setting.synthetic + note)
    env = setting.env
    keep = judge(learner, setting, env, play_key, study.episodes, chosen.discount)
    trained = train_learner(
        learner,
        rows,
        train_key,
        seeds=study.seeds,
        iterations=iterations,
        evaluate=keep,
        evaluate_at=evenly(iterations, study.evaluations),
        stage=stage,
        context=context,
        about={
            "agent": chosen,
            "batch_size": config.batch_size,
            "data": data,
            "synthetic": None if data == "real" else synthetic or SyntheticConfig(),
        },
    )
    return finish(
        trained, learner, chosen, name, setting, env, stage=stage, context=context, best=keep
    )


def on_rows(
    chosen: AgentConfig,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    draw: Any = sample_batch,
) -> tuple[Learner, Any, int]:
    """A learner on the dataset's rows, the rows, and how many iterations it takes."""
    sizes = setting.env.observation_size, setting.env.action_size
    period = make_agent(chosen, *sizes).period
    iterations, per = cadence(config.updates, config.per_iteration, period, study.evaluations)
    steps = {"batch_size": config.batch_size, "updates_per_iteration": per}
    learner = make_model_free(chosen, *sizes, draw=draw, **steps)
    dataset = setting.dataset
    rows = rows_for(chosen, dataset.transitions)
    if dataset.rows_file is None:
        return learner, to_device(rows), iterations
    if rows is not dataset.transitions or draw is not sample_batch:
        name, expected = agent_name(chosen), "rows in memory for this method"
        hint = "read them (stream='never', --stream never), or take another method"
        raise ConfigError("stream", f"rows on disk for {name}", expected, hint)
    return learner, rows_feed(dataset, config.batch_size, per), iterations


def relabelling_of(
    setting: Setting, study: StudyConfig, synthetic: SyntheticConfig
) -> tuple[RelabelConfig, Termination | None]:
    """Who relabels, with endings as the study has them: its classifier's settings, or the rule."""
    rule = termination_of(setting.dataset, setting.env, study)
    known = None if isinstance(rule, TerminationConfig) else rule
    return replace(synthetic.relabel, ending=study.ending), known


def on_synther(
    chosen: AgentConfig,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    synthetic: SyntheticConfig,
    context: RunContext | None,
) -> tuple[Learner, Any, int, Setting]:
    """A learner on rows of SynthER, drawn once for all seeds."""
    stage, by = f"{slug(setting.dataset.name)}-synther", synthetic.relabel.by
    relabelling, rule = relabelling_of(setting, study, synthetic)
    made = synthesise(
        setting.dataset,
        "synther",
        config=replace(synthetic, relabel=relabelling),
        termination=rule,
        seed=study.seed,
        stage=stage,
        context=context,
    )
    draw = mixing(synthetic.real_ratio)
    learner, real, iterations = on_rows(chosen, setting, study, config, draw)
    note = (
        f"Data: {len(made):,} rows that SynthER drew from a model of the dataset's "
        f"{len(setting.dataset):,}; {synthetic.real_ratio:.0%} of a batch is real." + TOLD[by]
    )
    data = MixedData(real, to_device(made.transitions))
    return learner, data, iterations, setting._replace(synthetic=note)


def on_pgd(
    chosen: AgentConfig,
    setting: Setting,
    study: StudyConfig,
    config: ModelFreeStudyConfig,
    synthetic: SyntheticConfig,
    context: RunContext | None,
) -> tuple[Learner, Any, int, Setting]:
    """A learner whose every iteration draws windows near its policy, each seed its own."""
    dataset, pgd = setting.dataset, synthetic.pgd
    agent = make_agent(chosen, setting.env.observation_size, setting.env.action_size)
    if agent.gaussian is None:
        raise ConfigError(
            "data",
            "pgd",
            "synther or real for an agent whose policy is not normal",
            "pgd guides td3_bc, iql, rebrac and bc",
        )
    iterations, per = cadence(config.updates, pgd.updates, agent.period)
    fit_key = jax.random.split(jax.random.key(study.seed))[0]
    stage = f"{slug(dataset.name)}-pgd"
    known = dataset.with_successors
    fitted = fit_windows(
        known, synthetic, fit_key, stage=stage, source=dataset.name, context=context
    )
    pgd = replace(pgd, updates=per, batch_size=config.batch_size)
    teller: Relabeller | None = None
    relabelling, rule = relabelling_of(setting, study, synthetic)
    if relabelling.by != "sampled":
        run = {"stage": f"{stage}-relabel", "context": context, "termination": rule}
        tell_key = jax.random.fold_in(fit_key, 1)
        teller = fit_relabeller(known, relabelling, tell_key, **run)
    learner = make_pgd(pgd, chosen, fitted.denoiser, fitted.layout, teller)
    drawn = iterations * pgd.windows * (synthetic.length - 1)
    note = (
        f"Data: up to {drawn:,} rows per seed that guided diffusion drew near the policy, "
        f"{iterations} times {pgd.windows:,} windows of {synthetic.length} states; "
        f"{pgd.real_ratio:.0%} of a batch is real." + TOLD[synthetic.relabel.by]
    )
    data = PgdData(to_device(dataset.transitions), fitted.params, teller.data if teller else ())
    return learner, data, iterations, setting._replace(synthetic=note)
