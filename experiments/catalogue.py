"""Studies and benchmarks that can be run, known without importing jax.

Minutes are those of the committed runs (`evidence/runs.csv`), on two cores without much else; None
where it was not measured. Smoke presets take a few, most of them to compile.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxrl_rollouts.plugins import ExperimentInfo

MUJOCO, PDE = "the extra mujoco", "the extra pde"
GOALS = "the project's goals"
LIPPE = "Lippe et al. 2023 (arXiv 2308.05732)"
NEUBAY = "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)"
SIMS = "Sims et al. 2024 (RAVL, arXiv 2402.12527)"
HOPPER = "hopper-medium-replay-mini-v1"
CHEETAH = ("halfcheetah-medium-mini-v1", "halfcheetah-medium-replay-mini-v1")
_NEEDS = "jaxrl_rollouts.experiments.kit.needs"

_LISTED = (
    ExperimentInfo(
        "bandit",
        "data of one arm: does a Bayesian agent try the other, and a penalised one",
        f"{NEUBAY}, bandit figure",
        minutes={"smoke": None, "cpu": 83, "paper": None},
    ),
    ExperimentInfo(
        "comparison",
        "BC, CQL, IQL, TD3+BC and SAC beside d3rlpy's: return by step and by second",
        GOALS,
        minutes={"smoke": None, "cpu": 126},
        needs={"cpu": (*CHEETAH[:1], HOPPER, MUJOCO)},
        prepare=f"{_NEEDS}:check_datasets",
    ),
    ExperimentInfo(
        "control_from_a_log",
        "an actuated PDE: agents on a log, with MLPs and field networks as world models",
        "Zeng, Linot & Graham 2022 (DManD-RL), arXiv 2205.00579; the project's goals",
        minutes={"smoke": None, "cpu": None, "long": None},
    ),
    ExperimentInfo(
        "edge_of_reach",
        "short and long rollouts of the simulator in place of a world model",
        f"{SIMS}, error-free dynamics",
        minutes={"smoke": None, "cpu": 55},
        needs={"cpu": (HOPPER, MUJOCO)},
        prepare=f"{_NEEDS}:check_datasets",
    ),
    ExperimentInfo(
        "edge_of_reach_toy",
        "overestimation with true dynamics on a plane, located by the optimal value",
        f"{SIMS}, simple environment",
        minutes={"smoke": None, "cpu": 65, "paper": None},
    ),
    ExperimentInfo(
        "guidance_gaussian",
        "samples of guidance rules against the exact product of normal densities",
        "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 3 and public code",
        minutes={"smoke": None, "cpu": 1},
    ),
    ExperimentInfo(
        "operators",
        "DRIFT-Net's mixer against attention, Fourier layers and convolutions in one network",
        "DRIFT-Net (ICLR 2026), its code; scOT: Herde et al. 2024 (arXiv 2405.19101)",
        minutes={"smoke": None, "cpu": 127},
        needs=dict.fromkeys(("smoke", "cpu"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    ExperimentInfo(
        "pde_speed",
        "benchmark: emulators' steps and rollouts, beside torch's, APEBench's, neuraloperator's",
        GOALS,
        minutes={"smoke": None, "cpu": 29},
        caches=False,
    ),
    ExperimentInfo(
        "refiner",
        "MSE, pushforward, error correction and PDE-Refiner on Kuramoto-Sivashinsky",
        LIPPE,
        minutes={"smoke": None, "cpu": 74, "gpu": None, "paper": None},
        needs=dict.fromkeys(("smoke", "cpu", "gpu", "paper"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    ExperimentInfo(
        "sampling",
        "transitions drawn in 1 to 8 network calls: solvers beside distilled students",
        "Heek et al. 2024 (multistep consistency models), arXiv 2403.06807",
        minutes={"smoke": None, "cpu": None},
        prepare=f"{_NEEDS}:check_datasets",
    ),
    ExperimentInfo(
        "speed",
        "benchmark: updates/s (and d3rlpy's), seeds side by side, rollout transitions/s",
        GOALS,
        minutes={"smoke": None, "cpu": 6},
        caches=False,
    ),
    ExperimentInfo(
        "true_dynamics",
        "MBPO, MOPO, MOBILE and RAVL from a learned model to the true one",
        f"{SIMS}, error-free dynamics",
        minutes={"smoke": None, "cpu": 84, "paper": None},
    ),
    ExperimentInfo(
        "trust_pde",
        "agreement of emulators against true valid times: ranks, promises, other domains",
        GOALS,
        minutes={"smoke": None, "cpu": 11, "long": None, "kolmogorov": 20, "decaying": 15},
        needs=dict.fromkeys(("smoke", "cpu", "long", "kolmogorov", "decaying"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
)
LISTINGS: Mapping[str, ExperimentInfo] = {listing.name: listing for listing in _LISTED}
