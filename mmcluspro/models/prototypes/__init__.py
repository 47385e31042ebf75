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

__all__ = ['LocalAwareOT', 'PrototypeBank', 'PrototypeMixin', 'local_aware_assign',
           'structure_aware_plan']
