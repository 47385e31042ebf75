"""UT-Zappos with the paper's schedule, and the runtime."""
_base_ = ['../datasets/ut_zappos.py', '../schedules/paper.py', '../default_runtime.py']
