"""NEUBAY (Ni et al. 2025): a history-dependent agent in long rollouts of a posterior."""
