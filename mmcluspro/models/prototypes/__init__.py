"""Prototypes of primitives: transport, assigners, bank (§3.3 of the paper)."""
from .assign import (
    Assignment,
    ClassicalOT,
    CosineAssigner,
    LocalAwareOT,
    Weights,
    assign_branches,
    fixed_plan,
    local_aware_assign,
    nearest_prototype,
)
from .bank import FeatureQueue, PrototypeBank, assign_together, update_together
from .clustered import PrototypeMixin
from .exact import EntropicPlan, TransportReport, entropic_plan, structure_aware_plan
from .pairs import PairPrototypes
from .problems import Branches, Problems, Solution, build_problems
from .start import balanced_sample, held_out_rule, share_rule

__all__ = [
    'Assignment', 'Branches', 'ClassicalOT', 'CosineAssigner', 'EntropicPlan', 'FeatureQueue',
    'LocalAwareOT', 'PairPrototypes', 'Problems', 'PrototypeBank', 'PrototypeMixin',
    'Solution', 'TransportReport',
    'Weights', 'assign_branches', 'assign_together', 'balanced_sample', 'build_problems',
    'entropic_plan', 'fixed_plan', 'held_out_rule', 'local_aware_assign', 'nearest_prototype',
    'share_rule', 'structure_aware_plan', 'update_together'
]
