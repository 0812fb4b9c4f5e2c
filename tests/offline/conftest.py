"""Makes `helpers_data` and `helpers_neubay` importable from the rooms."""
