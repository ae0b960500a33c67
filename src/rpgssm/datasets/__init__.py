"""Data sets with known truth that need no download: pendulums and linear systems, made from a seed."""

from .dataset import Dataset as Dataset
from .linear_systems import linear as linear
from .named import dataset_names as dataset_names
from .named import load_dataset as load_dataset
from .pendulums import pendulum as pendulum
