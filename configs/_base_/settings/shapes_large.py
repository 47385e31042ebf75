"""Shapes, the large version: data, schedule and runtime."""
_base_ = ['../datasets/shapes_large.py', '../schedules/shapes.py', '../default_runtime.py']
