"""Adding models one at a time gives the moments of all of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from resperturb.attacks.moments import Moments


@given(seed=st.integers(0, 1000), models=st.integers(2, 12), offset=st.sampled_from([0.0, 1e6]))
def test_means_and_covariances_are_those_of_the_models_a_row_was_in(seed: int, models: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(offset, 2.0, (models, 5, 2))
    where = rng.random((models, 5)) < 0.5
    moments = Moments.empty(5, 2)
    for model in range(models):
        moments.add(values[model], where[model])
    assert moments.count.tolist() == where.sum(axis=0).tolist()
    scatters = []
    for row in range(5):
        seen = values[where[:, row], row]
        if len(seen):
            assert np.allclose(moments.mean[row], seen.mean(axis=0))
        if len(seen) > 1:
            assert np.allclose(moments.variances()[row], seen.var(axis=0, ddof=1), rtol=1e-5)
            scatters.append((len(seen) - 1) * np.cov(seen.T))
    if scatters:
        freedom = sum(max(count - 1, 0) for count in moments.count)
        assert np.allclose(moments.pooled(), sum(scatters) / freedom, rtol=1e-5, atol=1e-7)
