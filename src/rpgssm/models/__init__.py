"""The model as pytrees: priors, encoders with their recognition heads, and the auxiliary decoder."""

from .convolution import Conv2d as Conv2d
from .decoder import ConvDecoder as ConvDecoder
from .decoder import Decoder as Decoder
from .decoder import DecoderInfo as DecoderInfo
from .decoder import MLPDecoder as MLPDecoder
from .decoder import decoder_loss as decoder_loss
from .decoder import make_decoder as make_decoder
from .decoder import sample_latents as sample_latents
from .encoders import CNNEncoder as CNNEncoder
from .encoders import Encoder as Encoder
from .encoders import KeypointEncoder as KeypointEncoder
from .encoders import LinearEncoder as LinearEncoder
from .encoders import MLPEncoder as MLPEncoder
from .encoders import UserEncoder as UserEncoder
from .encoders import make_encoder as make_encoder
from .heads import Head as Head
from .heads import Recognition as Recognition
from .heads import make_head as make_head
from .layers import Standardise as Standardise
from .layers import standardisation as standardisation
from .layers import trainable as trainable
