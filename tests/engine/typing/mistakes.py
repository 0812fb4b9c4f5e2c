"""One mistake a line, each of which a type checker has to see. Never run."""

import jaxrl_rollouts as jr
from jaxrl_rollouts import offline, pde

data = offline.load("pendulum-mixed")
result = offline.train(data, "ravl", seeds=2)
fields = pde.solve(pde.Simulation())

offline.train(data, "ravll")  # a method's name
offline.train(data, "ravl", sedes=2)  # an argument
offline.train(data, "ravl", preset="smal")  # a preset
print(result.retruns)  # an attribute of a result
offline.Mopo(penalti=1.0)  # a setting of a method
offline.Iql(expectil=0.7)  # a setting of an agent
offline.recipe("mopo", "papr")  # a recipe
pde.Refiner(refinments=3)  # a setting of an objective
pde.Fno(modess=8)  # a setting of a network
pde.fit("mse", data)  # a dataset of another field
pde.fit("mse", fields, netwrk="fno")  # an argument
jr.EnsembleConfig(membrs=3)  # a setting of the engine
print(jr.rolout)  # a public name
