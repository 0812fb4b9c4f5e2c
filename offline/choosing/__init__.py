"""Which of several policies to deploy, where there is no simulator: `choose`."""
