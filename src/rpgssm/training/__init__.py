"""The training loop of all models, with its settings, history and checkpoints."""

from .augment import Augmentation as Augmentation
from .augment import RandomFlips as RandomFlips
from .config import Stopping as Stopping
from .config import Training as Training
from .errors import LatentsNotFinite as LatentsNotFinite
from .errors import TrainingDiverged as TrainingDiverged
from .errors import check_finite as check_finite
from .fingerprint import data_identity as data_identity
from .history import History as History
from .loop import Report as Report
from .loop import train as train
from .loop import train_many as train_many
from .optimizer import SGD as SGD
from .optimizer import Adam as Adam
from .optimizer import Optimizer as Optimizer
from .run import Trained as Trained
from .samplers import RandomWindows as RandomWindows
from .samplers import Sampler as Sampler
from .samplers import SimilarWindows as SimilarWindows
from .samplers import window_for as window_for
from .state import TrainingState as TrainingState
from .state import from_arrays as from_arrays
from .state import to_arrays as to_arrays
from .tensorboard import TensorBoard as TensorBoard
