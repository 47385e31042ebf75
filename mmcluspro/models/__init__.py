"""Models: backbone → neck → head, the text side, clustering and losses.

Importing this package registers all of them under the scope ``mmcluspro``.
"""
from mmcluspro.models import (
    backbones,
    classifier,
    heads,
    losses,
    necks,
    peft,
    prototypes,
    text,
    zoo,
)
from mmcluspro.models.structures import (
    Features,
    Logits,
    Scores,
    Texts,
    TextTokens,
    TrainStep,
    as_features,
)

from .candidates import Candidates
from .clip import load_clip
from .state import check_state_keys, compact_state_hooks, declare_restorable
from .text.tokenizer import get_tokenizer

__all__ = ['Candidates', 'Features', 'Scores', 'TrainStep', 'declare_restorable', 'load_clip']
