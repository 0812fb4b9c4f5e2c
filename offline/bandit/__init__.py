"""NEUBAY's bandit: one arm has data, the other does not; beliefs, optimum, agent."""
