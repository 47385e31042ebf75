"""Losses on prototypes: contrast (Eq. 10) and decorrelation (Eq. 11)."""
from .hsic_loss import HSICLoss, hsic
from .pcl_loss import PCLLoss, prototype_contrast

__all__ = ['HSICLoss', 'PCLLoss', 'hsic', 'prototype_contrast']
