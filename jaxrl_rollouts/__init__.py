"""Learned dynamics rolled forward a long way, in JAX.

The engine: `rollout`, `ensemble` and `fitting`, `loop` (training), `checkpoint`, `replay`,
`devices`, `report`. What is built on it: `jaxrl_rollouts.offline`, `jaxrl_rollouts.pde`.
"""
