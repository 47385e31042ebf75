"""Fashion as stored features: data, schedule and runtime."""
_base_ = [
    '../datasets/fashion_features.py', '../schedules/fashion_features.py', '../default_runtime.py']
