"""Classifiers."""
from .compositional import CompositionalClassifier

__all__ = ['CompositionalClassifier']
