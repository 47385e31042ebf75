"""Models: backbone → neck → head, the text side, clustering and losses.

Importing this package registers all of them under the scope ``mmcluspro``.
"""
from . import backbones, classifiers, clustering, heads, losses, necks, peft, text, zoo
from .candidates import Candidates
from .clip_loader import get_tokenizer, load_clip
from .state import check_state_keys, compact_state_hooks, declare_restorable
from .structures import Features, Logits, Scores, Texts, TextTokens, TrainStep, as_features

__all__ = [
    'Candidates', 'Features', 'Logits', 'Scores', 'TextTokens', 'Texts', 'TrainStep',
    'as_features', 'backbones', 'check_state_keys', 'classifiers', 'clustering',
    'compact_state_hooks', 'declare_restorable', 'get_tokenizer', 'heads', 'load_clip', 'losses',
    'necks', 'peft', 'text', 'zoo'
]
