"""World models of a dataset: fitted, rolled, judged, trusted as far as their members agree,
saved.
"""
