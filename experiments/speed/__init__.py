"""Benchmarks: how fast the library is, and beside it what else there is, in turns within one run.

Peers run in interpreters of their own (their dependencies pin old ones); one that is not given is
left out, with its claims:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy d3rlpy
    python -m venv ape && ape/bin/pip install apebench==0.1.1
    python -m venv fno && fno/bin/pip install torch==2.13.0 neuraloperator==2.0.0
    jaxrl-rollouts run speed --peer-python torch/bin/python
    jaxrl-rollouts run diffusion_speed --torch-python torch/bin/python
    jaxrl-rollouts run neubay_speed --torch-python torch/bin/python
    jaxrl-rollouts run pde_speed --torch-python torch/bin/python \\
        --apebench-python ape/bin/python --neuralop-python fno/bin/python

`cost_curves` has no peers: it asks what twice as much costs. `X_cells.py` says what is built and
timed, `X_page.py` what is made of it, `peers/` what runs there.
"""
