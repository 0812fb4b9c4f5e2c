"""Keys of numbers, as public functions take them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxrl_rollouts.draws import as_key
from jaxrl_rollouts.errors import ConfigError


@pytest.mark.parametrize("number", [0, -1, 2**40, 2**63 - 1, -(2**63), np.int64(7)])
def test_a_number_of_64_bits_is_the_key_jax_makes_of_it(number: int) -> None:
    found, wanted = as_key(number), jax.random.key(int(number))
    np.testing.assert_array_equal(*map(jax.random.key_data, (found, wanted)))
    assert as_key(found) is found


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40, 10**5000], ids=[*"abcd"])
def test_a_larger_one_is_refused_with_the_range(number: int) -> None:
    with pytest.raises(ConfigError, match=r"seed: found .* bits', expected .* 2\*\*63 - 1"):
        as_key(number, "seed")
