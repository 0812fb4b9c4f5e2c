"""Speed and memory, beside other libraries in turns within one run.

Peers run in interpreters of their own, whose path is an option; one that is not given is left out:

    python -m venv torch && torch/bin/pip install torch==2.13.0 numpy d3rlpy
    python -m venv ape && ape/bin/pip install apebench==0.1.1
    python -m venv fno && fno/bin/pip install torch==2.13.0 neuraloperator==2.0.0
    jaxrl-rollouts run speed --peer-python torch/bin/python
    jaxrl-rollouts run comparison --peer-python torch/bin/python
    jaxrl-rollouts run pde_speed --torch-python torch/bin/python \\
        --apebench-python ape/bin/python --neuralop-python fno/bin/python

`X_cells.py` builds and times; `peers/` runs in the other interpreters.
"""
