"""What there is to run, known without importing jax: where it is from, what it needs, how long.

Minutes are those of the reports in `results/` (tests compare), on two cores without much else; what
nobody measured is None. Smoke presets take a few, most of them to compile.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxrl_rollouts.plugins import Listing

MUJOCO, GYMNAX, PDE = "the extra mujoco", "the extra gymnax", "the extra pde"
GOALS = "the project's goals"
LIPPE = "Lippe et al. 2023 (arXiv 2308.05732)"
_ALL = ("halfcheetah-random", "halfcheetah-medium", "halfcheetah-mixed", "hopper-mixed")
# What presets take, here and in the experiments' own files.
NEUBAY_D4RL = (
    "halfcheetah-random-v2",
    "halfcheetah-medium-v2",
    "halfcheetah-medium-replay-v2",
    "hopper-medium-replay-v2",
)
RAVL_MADE = ("halfcheetah-mixed", "hopper-mixed", "halfcheetah-medium", "hopper-medium")
RAVL_D4RL = tuple(
    f"{family}-{kind}-v2"
    for kind in ("medium-replay", "medium")
    for family in ("halfcheetah", "hopper", "walker2d")
)
_NEEDS = "jaxrl_rollouts.experiments.kit.needs"
_LONGER = "jaxrl_rollouts.offline.study.longer:longer"

_LISTED = (
    Listing(
        "bandit_bayes",
        "data of one arm: Bayesian agents try the other and stay if it pays, penalised do not",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), bandit figure",
        minutes={"smoke": None, "cpu": 83, "paper": None},
    ),
    Listing(
        "beside_others",
        "cloning, CQL, IQL, TD3+BC and SAC beside d3rlpy's: return by step and by second",
        GOALS,
        minutes={"smoke": None, "cpu": 126, "cpu-long": None},
        needs={
            "smoke": ("hopper-random", MUJOCO),
            **dict.fromkeys(("cpu", "cpu-long"), ("halfcheetah-medium", "hopper-medium", MUJOCO)),
        },
        prepare=f"{_NEEDS}:of_datasets",
    ),
    Listing(
        "compounding_error",
        "open-loop error of world models over hundreds of steps, with and without layer norm",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), compounding errors of LN and no-LN models",
        minutes={"smoke": None, "cpu": 16, "paper": None},
        needs={
            "cpu": ("halfcheetah-medium", "halfcheetah-mixed"),
            "paper": ("halfcheetah-medium-v2", "halfcheetah-medium-replay-v2"),
        },
        prepare=f"{_NEEDS}:of_pairs",
    ),
    Listing(
        "cost_curves",
        "benchmark: seconds and bytes over rows, seeds, members, horizon and grid points",
        GOALS,
        minutes={"smoke": None, "cpu": 23},
        caches=False,
    ),
    Listing(
        "critic_norm",
        "layer-normalised critics for TD3+BC and IQL: what they earn, promise, and how they swing",
        GOALS,
        minutes={"smoke": None, "cpu": 30},
        needs={
            "smoke": ("hopper-random", MUJOCO),
            "cpu": ("halfcheetah-medium", "halfcheetah-mixed", MUJOCO),
        },
        prepare=f"{_NEEDS}:of_datasets",
        longer=_LONGER,
    ),
    Listing(
        "diffusion_speed",
        "benchmark: TD3+BC, IQL and denoisers beside d3rlpy and torch",
        GOALS,
        minutes={"smoke": None, "cpu": 9},
        caches=False,
    ),
    Listing(
        "drift_net",
        "DRIFT-Net's mixer against attention, Fourier layers and convolutions in one network",
        "DRIFT-Net (ICLR 2026), its code; scOT: Herde et al. 2024 (arXiv 2405.19101)",
        minutes={"smoke": None, "cpu": 127, "cpu-long": None},
        needs=dict.fromkeys(("smoke", "cpu", "cpu-long"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "edge_of_reach_mujoco",
        "short and long rollouts of a perfect model: what fails in short ones is the edge of reach",
        "Sims et al. 2024 (RAVL), arXiv 2402.12527, error-free dynamics",
        minutes={"smoke": None, "cpu": 65},
        needs={"cpu": ("hopper-mixed", MUJOCO)},
        prepare=f"{_NEEDS}:of_dataset",
        longer=_LONGER,
    ),
    Listing(
        "edge_of_reach_toy",
        "why model-based offline RL explodes with perfect dynamics, and what cures it",
        "Sims et al. 2024 (arXiv 2402.12527), simple environment",
        minutes={"smoke": None, "cpu": 65, "paper": None},
        longer=_LONGER,
    ),
    Listing(
        "few_steps",
        "students in 1 to 8 network calls beside their teacher: rows, agents, guided windows",
        "Heek et al. 2024 (multistep consistency models), arXiv 2403.06807",
        minutes={"smoke": None, "ring": None, "quick": None, "cpu": 38, "gpu": None},
        needs={"gpu": ("halfcheetah-medium", MUJOCO)},
        prepare=f"{_NEEDS}:of_dataset",
    ),
    Listing(
        "flow_policies",
        "SAC with flows for a policy: peaks kept, gradients over training, returns at equal steps",
        "Zhang et al. 2025 (SAC Flow), arXiv 2509.25756",
        minutes={"smoke": None, "bandit": 5, "cpu": None, "gpu": None},
        needs=dict.fromkeys(("cpu", "gpu"), (MUJOCO,)),
        prepare=f"{_NEEDS}:of_environments",
    ),
    Listing(
        "flows_refiner",
        "PDE-Refiner on a smooth and on a turbulent flow, beside MSE training and a low-pass",
        LIPPE,
        minutes={"smoke": None, "cpu": 30},
        needs=dict.fromkeys(("smoke", "cpu"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "guidance_gaussian",
        "is policy-guided diffusion the tempered product it stands for? normal data, exact",
        "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 3 and public code",
        minutes={"smoke": None, "cpu": 1},
    ),
    Listing(
        "horizon_overestimation",
        "promised against earned value over the length of model rollouts, fixed and adaptive",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), figure 1",
        minutes={"smoke": None, "cpu": 24},
    ),
    Listing(
        "ks_ablation",
        "noise floor, refinements, step size, history, data and resolution of PDE-Refiner",
        LIPPE,
        minutes={"smoke": None, "cpu": 110},
        needs=dict.fromkeys(("smoke", "cpu"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "ks_conditional",
        "one emulator for viscosities 0.5 to 1.5: horizon by viscosity",
        LIPPE,
        minutes={"smoke": None, "cpu": 30, "gpu": None, "paper": None},
        needs=dict.fromkeys(("smoke", "cpu", "gpu", "paper"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "ks_crossing",
        "which way of spending a training budget makes PDE-Refiner's rollouts longer",
        LIPPE,
        minutes={"smoke": None, "cpu-long": 84},
        needs=dict.fromkeys(("smoke", "cpu-long"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "ks_refiner",
        "MSE, pushforward, error correction and PDE-Refiner on Kuramoto-Sivashinsky",
        LIPPE,
        minutes={"smoke": None, "cpu": 74, "gpu": None, "paper": None},
        needs=dict.fromkeys(("smoke", "cpu", "gpu", "paper"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "ks_settled",
        "when refinement pays: MSE, a free low-pass and refiners over step size, data, a transient",
        LIPPE,
        minutes={"smoke": None, "cpu": 32},
        needs=dict.fromkeys(("smoke", "cpu"), (PDE,)),
        prepare=f"{_NEEDS}:check_solver",
    ),
    Listing(
        "memory",
        "benchmark: peak memory as predicted before a training, and as measured",
        GOALS,
        minutes={"smoke": None, "cpu": 15},
        caches=False,
    ),
    Listing(
        "neubay_memory",
        "runners whose cart and pole nobody sees: an agent with a memory against one without",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)",
        minutes={"smoke": None, "cpu": 68, "fleet": 53},
    ),
    Listing(
        "neubay_mujoco",
        "NEUBAY, its ablations, MOPO, MOBILE and RAVL on MuJoCo data, at equal budgets",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341)",
        minutes={"smoke": None, "cpu": 139, "gpu": None, "paper": None},
        needs={
            "smoke": ("hopper-random", MUJOCO),
            "cpu": ("halfcheetah-mixed", MUJOCO),
            "gpu": (*_ALL, MUJOCO),
            "paper": (*NEUBAY_D4RL, MUJOCO),
        },
        prepare=f"{_NEEDS}:of_datasets",
    ),
    Listing(
        "neubay_quantiles",
        "where to cut rollouts: values promised on the data, and those the simulator gives there",
        "Ni et al. 2025 (NEUBAY, arXiv 2512.04341), figure 1",
        minutes={"smoke": None, "cpu": 39},
        needs={"smoke": ("hopper-random", MUJOCO), "cpu": ("hopper-mixed", MUJOCO)},
        prepare=f"{_NEEDS}:of_dataset",
    ),
    Listing(
        "neubay_speed",
        "benchmark: NEUBAY's imagined transitions and gradient steps, beside loops and torch",
        GOALS,
        minutes={"smoke": None, "cpu": 5, "gpu": None},
        caches=False,
    ),
    Listing(
        "observation_units",
        "why critics explode sooner on standardised observations: which part of the units does it",
        GOALS,
        minutes={"smoke": None, "cpu": 21},
        needs={"smoke": ("hopper-random", MUJOCO), "cpu": ("hopper-mixed", MUJOCO)},
        prepare=f"{_NEEDS}:of_dataset",
        longer=_LONGER,
    ),
    Listing(
        "online_sac",
        "what the datasets' policies learned: SAC in the simulators beside published curves",
        "Weng et al. 2022 (Tianshou), arXiv 2107.14171, MuJoCo benchmark",
        minutes={"smoke": None, "cpu": 32, "published": None},
        needs=dict.fromkeys(("smoke", "cpu", "published"), (MUJOCO,)),
        prepare=f"{_NEEDS}:of_environments",
    ),
    Listing(
        "pde_speed",
        "benchmark: emulators' steps and rollouts, beside torch's, APEBench's, neuraloperator's",
        GOALS,
        minutes={"smoke": None, "cpu": 29},
        caches=False,
    ),
    Listing(
        "pgd_agents",
        "agents on real, SynthER, unguided and policy-guided data, regularisers swept",
        "Jackson et al. 2024 (PGD), arXiv 2404.06356; Lu et al. 2023 (SynthER), arXiv 2303.06614",
        minutes={"smoke": None, "cpu": 32, "told": 78, "gpu": None, "paper": None},
        needs={
            "gpu": ("hopper-mixed", "halfcheetah-medium", "halfcheetah-mixed", MUJOCO),
            "paper": ("halfcheetah-medium-v2", "hopper-medium-v2", "walker2d-medium-v2", MUJOCO),
        },
        prepare=f"{_NEEDS}:of_datasets",
    ),
    Listing(
        "pgd_vs_world_model",
        "policy likelihood against dynamics error: guided diffusion and an ensemble",
        "Jackson et al. 2024 (PGD), arXiv 2404.06356, section 5",
        minutes={"smoke": None, "cpu": 131, "gpu": None, "paper": None},
        needs={
            "cpu": ("halfcheetah-medium", MUJOCO),
            "gpu": ("halfcheetah-medium", MUJOCO),
            "paper": ("halfcheetah-medium-v2", MUJOCO),
        },
        prepare=f"{_NEEDS}:of_cases",
    ),
    Listing(
        "planner",
        "plans drawn in one network call against 255: return, speed, truth; beside BC and TD3+BC",
        "Decision Diffuser (Ajay et al. 2023), arXiv 2211.15657; the project's goals",
        minutes={"smoke": None, "cpu": 5, "halfcheetah": 10, "gpu": None},
        needs={
            "halfcheetah": ("halfcheetah-mixed", MUJOCO),
            "gpu": ("halfcheetah-medium", MUJOCO),
        },
        prepare=f"{_NEEDS}:of_datasets",
    ),
    Listing(
        "promises",
        "promised against earned value over training: base, MOPO, RAVL and NEUBAY, one picture",
        "Sims et al. 2024 (RAVL), arXiv 2402.12527; Ni et al. 2025 (NEUBAY), arXiv 2512.04341",
        minutes={"smoke": None, "cpu": 70},
        needs={"smoke": ("hopper-random", MUJOCO), "cpu": ("halfcheetah-mixed", MUJOCO)},
        prepare=f"{_NEEDS}:of_dataset",
    ),
    Listing(
        "ravl_mujoco",
        "base, MOPO, MOBILE, RAVL, EDAC and cloning on MuJoCo data, forty time constants long",
        "Sims et al. 2024 (RAVL), arXiv 2402.12527, section 6",
        minutes={
            "smoke": None,
            "cpu": 51,
            "cpu-long": None,
            "simulator": None,
            "gpu": None,
            "paper": None,
        },
        needs={
            "smoke": ("hopper-random", MUJOCO),
            "cpu": ("halfcheetah-mixed", MUJOCO),
            "cpu-long": (*RAVL_MADE, MUJOCO),
            "simulator": ("halfcheetah-mixed", MUJOCO),
            "gpu": ("halfcheetah-medium", "halfcheetah-mixed", MUJOCO),
            "paper": (*RAVL_D4RL, MUJOCO),
        },
        prepare=f"{_NEEDS}:of_datasets",
        longer=_LONGER,
    ),
    Listing(
        "relabel_sizes",
        "samples told anew: sizes of denoiser and of the network that tells, share of real rows",
        "relabelling with a world model of the same rows",
        minutes={"smoke": None, "cpu": 122},
        needs={"cpu": ("halfcheetah-mixed", MUJOCO)},
        prepare=f"{_NEEDS}:of_study",
    ),
    Listing(
        "sampler_steps",
        "what sampling costs and gives by sampler and calls: errors, distance, spread, agents",
        "Karras et al. 2022 (EDM), arXiv 2206.00364, figure 2; the project's goals",
        minutes={"smoke": None, "cpu": 40},
        prepare=f"{_NEEDS}:of_dataset",
    ),
    Listing(
        "speed",
        "benchmark: updates/s (and d3rlpy's), seeds side by side, rollout transitions/s",
        GOALS,
        minutes={"smoke": None, "cpu": 6},
        caches=False,
    ),
    Listing(
        "synther_small_data",
        "SynthER on 3, 15 and 100 % of a dataset: rows, noise, samples, samples told anew",
        "Lu et al. 2023 (SynthER), arXiv 2303.06614, section 4.1",
        minutes={"smoke": None, "cpu": 75, "gpu": None, "paper": None},
        needs={
            "cpu": ("halfcheetah-mixed", MUJOCO),
            "gpu": ("halfcheetah-mixed", MUJOCO),
            "paper": ("halfcheetah-medium-replay-v2", MUJOCO),
        },
        prepare=f"{_NEEDS}:of_dataset",
    ),
    Listing(
        "true_dynamics",
        "base, MOPO, MOBILE and RAVL from a learned model to the true one: who gains, who falls",
        "Sims et al. 2024 (arXiv 2402.12527), error-free dynamics",
        minutes={"smoke": None, "cpu": 84, "paper": None},
        needs={"cpu": (GYMNAX,), "paper": (GYMNAX,)},
        prepare=f"{_NEEDS}:of_dials",
    ),
)
LISTINGS: Mapping[str, Listing] = {listing.name: listing for listing in _LISTED}
