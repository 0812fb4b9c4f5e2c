"""The README's programs, of which a type checker has nothing to say. Never run."""

import jaxrl_rollouts as jr
from jaxrl_rollouts import offline, pde

jr.prepare()
data = offline.load("pendulum-mixed")
result = offline.train(data, "ravl", preset="small", seeds=2, steps=20_000)
print(result.returns, result.estimated_value, result.true_value)
action = result.policy(0)(data.transitions.observations[0])
offline.train(data, offline.Mopo(penalty=5.0), seeds=2)
offline.train(data, offline.recipe("cql", "small", weight=10.0))

train = pde.solve(pde.Simulation("kolmogorov_2d", trajectories=64, points=32, frames=31))
emulator = pde.fit("mse", train, network=pde.Fno(width=24, modes=10), steps=1000)
rolled = emulator.roll(train, 30)
pde.fit(pde.Refiner(refinements=3), train, network="resnet")
config = jr.EnsembleConfig(members=3)
