"""Model-based offline methods on one scheme; each file says how its method differs from base."""
