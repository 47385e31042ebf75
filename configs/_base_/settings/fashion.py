"""Fashion from images: data, schedule and runtime."""
_base_ = ['../datasets/fashion.py', '../schedules/fashion.py', '../default_runtime.py']
