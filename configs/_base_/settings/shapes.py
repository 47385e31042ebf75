"""Shapes: data, schedule and runtime."""
_base_ = ['../datasets/shapes.py', '../schedules/shapes.py', '../default_runtime.py']
