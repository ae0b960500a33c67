import numpy as np
import pytest

from rpgssm.datasets import dataset_names, linear, load_dataset, pendulum


@pytest.mark.parametrize("name", dataset_names())
def test_every_name_makes_sequences_with_targets(name):
    data = load_dataset(name, "test", n=2)
    assert len(data) == 2
    for target in data.targets.values():
        assert target.shape[:2] == data.observations.shape[:2] == (2, 100)


def test_names_are_the_functions():
    np.testing.assert_array_equal(
        load_dataset("linear-small", "test", seed=3).observations,
        linear(50, size="small", split="test", seed=3).observations,
    )
    np.testing.assert_array_equal(
        load_dataset("pendulum-textures", n=2).observations, pendulum(2, background="textures").observations
    )


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="there is no data set 'chess'; choose one of pendulum"):
        load_dataset("chess")
