"""Sweeps: datasets x methods x seeds as tasks on Ray or as a SLURM job array, into one report."""
