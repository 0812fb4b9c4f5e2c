"""Actor-critics that learn from transitions: SAC-N and EDAC, TD3+BC, IQL, ReBRAC; a planner."""
