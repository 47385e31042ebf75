"""Prototypes of primitives: transport, assigners, bank (§3.3 of the paper)."""
from .assigners import ClassicalOT, CosineAssigner, LocalAwareOT, nearest_prototype
from .fixed import fixed_plan
from .gcg import structure_aware_plan
from .joint import assign_together, fill_queue, update_together
from .local_aware import Assignment, Weights, assign_branches, local_aware_assign
from .num_prototypes import held_out_rule, share_rule
from .pair_prototypes import PairPrototypes
from .problems import Branches, Problems, build_problems
from .prototypes import PrototypeBank
from .queue import FeatureQueue
from .report import TransportReport
from .solution import Solution
from .transport import EntropicPlan, entropic_plan

__all__ = [
    'Assignment', 'Branches', 'ClassicalOT', 'CosineAssigner', 'EntropicPlan', 'FeatureQueue',
    'LocalAwareOT', 'PairPrototypes', 'Problems', 'PrototypeBank', 'Solution', 'TransportReport',
    'Weights', 'assign_branches', 'assign_together', 'build_problems', 'entropic_plan',
    'fill_queue', 'fixed_plan', 'held_out_rule', 'local_aware_assign', 'nearest_prototype',
    'share_rule', 'structure_aware_plan', 'update_together'
]
