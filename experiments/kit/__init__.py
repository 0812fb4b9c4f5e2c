"""What experiments are made of: grids of arms, claims, drawings, colours, pages, timing."""
