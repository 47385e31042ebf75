"""C-GQA with the paper's schedule, and the runtime."""
_base_ = ['../datasets/c_gqa.py', '../schedules/paper.py', '../default_runtime.py']
