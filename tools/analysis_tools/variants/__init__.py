"""Uses of prototypes beyond the paper's, measured in docs/variants.md; no part of the package."""
from .classifier import PrototypeLogitsHead
from .conditional import AdversarialProbe, ConditionalAlignment
from .contrast import OwnPCLLoss, TextContrast
from .recombination import RecombinationHead
from .sharpened import SharpenedHead
from .transfer import TransferHead

__all__ = ['AdversarialProbe', 'ConditionalAlignment', 'OwnPCLLoss', 'PrototypeLogitsHead',
           'RecombinationHead', 'SharpenedHead', 'TextContrast', 'TransferHead']
