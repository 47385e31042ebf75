"""Prototypes of primitives: transport, assigners, bank (§3.3 of the paper)."""
from .assigners import ClassicalOT, CosineAssigner, LocalAwareOT, nearest_prototype
from .gcg import TransportReport, structure_aware_plan
from .local_aware import Assignment, local_aware_assign
from .num_prototypes import held_out_rule, share_rule
from .prototypes import PrototypeBank
from .queue import FeatureQueue
from .transport import EntropicPlan, entropic_plan

__all__ = [
    'Assignment', 'ClassicalOT', 'CosineAssigner', 'EntropicPlan', 'FeatureQueue', 'LocalAwareOT',
    'PrototypeBank', 'TransportReport', 'entropic_plan', 'held_out_rule', 'local_aware_assign',
    'nearest_prototype', 'share_rule', 'structure_aware_plan'
]
