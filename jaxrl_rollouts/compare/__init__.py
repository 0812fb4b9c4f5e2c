"""Comparing methods: grids of arms and seeds, claims, drawings, times beside other programs."""
