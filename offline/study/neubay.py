"""A dataset and NEUBAY: fit a posterior, measure how far it can be trusted, train, play, save."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxrl_rollouts.configs import positive
from jaxrl_rollouts.ensemble_config import EnsembleConfig
from jaxrl_rollouts.loop import Trained, evenly
from jaxrl_rollouts.record.context import RunContext, poll

from ..data import Dataset, to_device
from ..environments import Environment
from ..neubay.config import NeubayConfig, Sizes
from ..neubay.prepare import prepare, ring_text, save_every, world_number
from ..recurrent.histories import remembering
from ..recurrent.memory import MemoryConfig
from ..recurrent.sac import RecurrentSacConfig
from ..training import train_learner
from ..worlds.dynamics import World
from ..worlds.endings import TerminationConfig, fit_endings
from ..worlds.fit import NEUBAY_ENSEMBLE, WorldModel, fit_worlds
from ..worlds.saved import load_worlds, save_worlds
from ..worlds.trust import LEVELS, Trust, measure_trusts
from .config import StudyConfig, keys_of
from .outcome import Outcome, finish, judge
from .setting import environment_of, termination_of, verify_checksum
from .source import slug

NAMES = ("neubay", "neubay_markov")


@dataclass(frozen=True)
class NeubayStudyConfig:
    """NEUBAY's own part of a study; seeds, looks and episodes are the `StudyConfig`'s.

    Attributes:
        ensemble: its world models.
        worlds: how many ensembles to fit; seed `k` is trained in number `k % worlds`.
        folder: of worlds that were saved by a run (`.../worlds`), to be used instead of fitting.
        agent: rollouts, ring and recurrent SAC.
    """

    ensemble: EnsembleConfig = field(default_factory=lambda: NEUBAY_ENSEMBLE)
    worlds: int = positive(1)
    folder: str = ""
    agent: NeubayConfig = field(default_factory=NeubayConfig)


class Posterior(NamedTuple):
    """A dataset with what its ensembles think and how far they can be trusted.

    Attributes:
        dataset, env: where the rows come from.
        model: architecture and scalers.
        worlds, trust: leaves `[W, ...]`.
        trained: history of the fit; None where the worlds were read from a folder.
        ensemble: settings of the world models; `ending` those of a learned termination.
    """

    dataset: Dataset
    env: Environment
    model: WorldModel
    worlds: World
    trust: Trust
    trained: Trained | None
    ensemble: EnsembleConfig
    ending: TerminationConfig | None = None

    def world_of(self, seed: int) -> World:
        """The ensemble in which a seed is trained, without the axis of worlds."""
        number = world_number(seed, self.trust.mean.shape[0])
        return jax.tree.map(lambda x: x[number], self.worlds)

    def save_worlds(self, folder: Path) -> Path:
        """Write the world models and how far they can be trusted, for `load_worlds`."""
        more: Any = {"trust": self.trust, "ending": self.ending}
        return save_worlds(folder, self.worlds, self.dataset, self.ensemble, "observations", **more)


def markov(config: NeubayConfig) -> NeubayConfig:
    """The ablation without a memory: the same loop, ring and tapes, and one learning rate.

    The published one is a feed-forward SAC on a buffer of transitions. Here memory is the only
    difference, so that nothing else can explain one.
    """
    memory = MemoryConfig("none", width=config.agent.memory.width)
    agent = replace(config.agent, memory=memory, memory_rate=config.agent.head_rate)
    return replace(config, agent=agent)


def fit_posterior(
    dataset: Dataset,
    study: StudyConfig,
    config: NeubayStudyConfig,
    context: RunContext | None,
    levels: tuple[float, ...] = (),
    env: Environment | None = None,
) -> Posterior:
    """Fit ensembles (or read them) and measure their disagreement on the dataset.

    Args:
        dataset: the rows.
        study: for the seed.
        config: ensembles; the level of its agent is measured.
        context: with one, the worlds are also saved in the stage's folder, for other runs.
        levels: quantiles to measure besides.
        env: None takes the dataset's own.
    """
    env, name = env or environment_of(dataset), slug(dataset.name)
    rule = termination_of(dataset, env, study)
    verify_checksum(dataset, context)
    asked = {*LEVELS, *levels, config.agent.level}
    measured = tuple(sorted(level for level in asked if level >= 0))
    known = dataset.with_successors
    rows = to_device(known)

    def trust_of(model: WorldModel, worlds: World) -> Trust:
        poll(context, f"before measuring {name}-posterior")
        return measure_trusts(model.fitter, worlds, rows, measured)

    if config.folder:
        saved = load_worlds(config.folder, dataset)
        worlds = saved.worlds._replace(ending=None)  # fitted again where one is wanted
        model, trained, ensemble = saved.model, None, saved.config
        trust = trust_of(model, worlds)
    else:
        key = jax.random.fold_in(jax.random.key(study.seed), 2)
        fitted = fit_worlds(
            config.ensemble,
            known,
            key,
            seeds=config.worlds,
            targets="observations",
            stage=f"{name}-posterior",
            context=context,
        )
        (model, worlds, trained), ensemble = fitted, config.ensemble
        trust = trust_of(model, worlds)
    ending = rule if isinstance(rule, TerminationConfig) else None
    if ending is not None:
        endings, _ = fit_endings(
            ending,
            known,
            jax.random.fold_in(jax.random.key(study.seed), 3),
            seeds=trust.mean.shape[0],
            stage=f"{name}-posterior-termination",
            context=context,
        )
        worlds = worlds._replace(ending=endings)
    posterior = Posterior(dataset, env, model, worlds, trust, trained, ensemble, ending)
    if context and not config.folder:
        posterior.save_worlds(context.folder.stage(f"{name}-posterior") / "worlds")
    return posterior


def train_neubay(
    name: str,
    posterior: Posterior,
    study: StudyConfig,
    config: NeubayConfig,
    context: RunContext | None,
) -> Outcome:
    """Train one arm in the posterior and play its policy in the true environment."""
    dataset, env = posterior.dataset, posterior.env
    rule = termination_of(dataset, env, study)
    prepared = prepare(
        config,
        dataset.transitions,
        posterior.model.fitter,
        posterior.worlds,
        posterior.trust,
        env,
        rule,
        seeds=study.seeds,
        source=dataset.name,
    )
    train_key, play_key = keys_of(study.seed)
    stage = f"{slug(dataset.name)}-{slug(name.replace(' ', '-'))}"
    seen = env if config.markov else remembering(env)
    if context and context.progress:
        print(ring_text(config, prepared.sizes, study.seeds), flush=True)
    learner, discount = prepared.learner, config.agent.discount
    keep = judge(learner, posterior, seen, play_key, study.episodes, discount)
    trained = train_learner(
        prepared.learner,
        prepared.data,
        train_key,
        seeds=study.seeds,
        iterations=config.iterations,
        per_seed=prepared.per_seed,
        evaluate=keep,
        evaluate_at=evenly(config.iterations, study.evaluations),
        stage=stage,
        context=context,
        save_every_seconds=save_every(config, prepared.sizes, study.seeds),
        about=config,
    )
    return finish(
        trained,
        prepared.learner,
        config.agent,
        name,
        posterior,
        seen,
        stage=stage,
        context=context,
        best=keep,
    )


def ring_note(posterior: Posterior, study: StudyConfig, config: NeubayConfig) -> str:
    """What the token rings of a study take."""
    return rings_of(posterior.env, study, config)


def rings_of(env: Environment, study: StudyConfig, config: NeubayConfig) -> str:
    """The same, known before there is a posterior."""
    sizes = Sizes(env.observation_size, env.action_size, env.max_episode_steps, 1)
    return ring_text(config, sizes, study.seeds)


def small_neubay(
    *,
    members: int = 14,
    hidden: tuple[int, ...] = (64,) * 3,
    epochs: int = 15,
    width: int = 64,
    steps: int = 7500,
    per_iteration: int = 50,
    rollouts: int = 20,
    tape: int = 512,
    capacity: int = 200_000,
    tau: float = 0.01,
) -> NeubayStudyConfig:
    """Small networks that learn ten times as fast (the memory more than that), for a CPU."""
    ensemble = replace(
        NEUBAY_ENSEMBLE,
        members=members,
        elites=max(members - 2, 1),
        hidden=hidden,
        max_epochs=epochs,
    )
    agent = RecurrentSacConfig(
        memory=MemoryConfig("lru", width=width, state=width // 2, layers=1),
        head=(width,) * 2,
        num_critics=4,
        memory_rate=3e-4,
        head_rate=1e-3,
        alpha_lr=1e-3,
        tau=tau,
        steps=steps,
        real_weight=0.5,
    )
    return NeubayStudyConfig(
        ensemble=ensemble,
        agent=NeubayConfig(
            agent=agent,
            rollouts=rollouts,
            updates_per_iteration=per_iteration,
            tape=tape,
            capacity=capacity,
            early_exit=25,
        ),
    )


def small_markov(*, tau: float = 0.02, worlds: int = 1, **sizes: Any) -> NeubayStudyConfig:
    """`small_neubay` without a memory, on single transitions; the temperature is fixed, as
    published for Hopper.

    Args:
        tau: of the target networks.
        worlds: ensembles to fit.
        **sizes: of `small_neubay`.
    """
    small = small_neubay(tau=tau, **sizes)
    agent = markov(small.agent)
    learner = replace(agent.agent, learn_alpha=False, initial_alpha=0.2)
    agent = replace(agent, agent=learner, weighting="transition")
    return replace(small, agent=agent, worlds=worlds)


def smoke_markov(*, tau: float = 0.02) -> NeubayStudyConfig:
    """`small_markov` that only runs: twenty gradient steps."""
    return small_markov(
        tau=tau,
        members=4,
        hidden=(16,),
        epochs=1,
        width=8,
        steps=20,
        per_iteration=2,
        rollouts=8,
        tape=32,
        capacity=10_000,
    )
