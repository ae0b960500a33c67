"""An estimate of the memory that the free energy needs, for choosing a batch size.

It counts the arrays alive at the same time in one evaluation of value and gradient, and is within a factor of two of
the compiler's report.
"""

from .layout import Lanes, choose_layout
from .pairs import chunk_frames


def predict_memory(
    batch: int,
    time: int,
    latent: int,
    *,
    modalities: int = 1,
    shared: bool = True,
    masked: bool = False,
    lanes: int | None = None,
    itemsize: int = 4,
) -> int:
    """Bytes needed by `free_energy` and its gradient.

    `shared`: precisions do not depend on the data. `masked`: there are masks or ragged sequences, so covariances differ
    between sequences even with shared precisions.
    """
    frames = batch * time
    matrix = latent * latent
    vectors = 26 * frames * latent
    logits = modalities * batch * frames
    if shared and not masked:
        matrices, pairs = 20 * time * matrix, 0
    else:
        live = 32 if choose_layout(batch, latent) is Lanes else 19
        matrices = (live + 3 * modalities) * frames * matrix
        chunk = chunk_frames(time, batch, latent, lanes) * batch * (latent + 1) ** 2
        pairs = 0 if shared else modalities * (3 * chunk + 2 * frames * (latent + 1) ** 2)
    return itemsize * (vectors + logits + matrices + pairs)
