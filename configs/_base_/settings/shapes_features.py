"""Shapes as stored features: data, schedule and runtime."""
_base_ = ['../datasets/shapes_features.py', '../schedules/shapes.py', '../default_runtime.py']
