import numpy as np, jax
from jaxrl_rollouts import offline
from dataclasses import replace

data = offline.load("pendulum-mixed")
W = dict(hidden=(16, 16), weight_decay=(2.5e-5,), batch_size=512, max_epochs=2)
b = offline.small_budget(2)
b = replace(
    b,
    study=replace(
        b.study,
        evaluations=2,
        episodes=2,
        epochs=2,
        ensemble=replace(b.study.ensemble, hidden=(16, 16), batch_size=512, max_epochs=2),
        agent=replace(b.study.agent, hidden=(16,)),
        rollouts=replace(b.study.rollouts, rollouts_per_epoch=200, updates_per_epoch=50),
    ),
)
for unit in ("raw", "mean"):
    old = offline.train(data, offline.Mopo(penalty=2.0, unit=unit), b)
    new = offline.next_train(
        data,
        offline.recipe(
            "mopo",
            "small",
            penalty=2.0,
            unit=unit,
            steps=100,
            agent={"hidden": (16,)},
            world={"hidden": (16, 16), "batch_size": 512, "max_epochs": 2},
            rollouts={"starts": 200, "updates": 50},
        ),
        evaluations=2,
        episodes=2,
    )
    d = jax.tree.map(
        lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()),
        old.trained.state.agent,
        new.trained.state.agent,
    )
    print(
        "mopo",
        unit,
        "largest difference of any parameter",
        max(jax.tree.leaves(d)),
        old.returns,
        new.returns,
    )
b2 = replace(b, model_free=replace(b.model_free, updates=100, per_iteration=50))
old = offline.train(data, "iql", b2)
new = offline.next_train(
    data, offline.recipe("iql", "small", steps=100, per_iteration=50), evaluations=2, episodes=2
)
d = jax.tree.map(
    lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()),
    old.trained.state.agent,
    new.trained.state.agent,
)
print("iql", max(jax.tree.leaves(d)), old.returns, new.returns)
