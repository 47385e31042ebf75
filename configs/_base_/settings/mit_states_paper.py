"""MIT-States with the paper's schedule, and the runtime."""
_base_ = ['../datasets/mit_states.py', '../schedules/paper.py', '../default_runtime.py']
