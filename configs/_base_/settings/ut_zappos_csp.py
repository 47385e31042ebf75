"""UT-Zappos with CSP's schedule, and the runtime."""
_base_ = ['../datasets/ut_zappos.py', '../schedules/csp.py', '../default_runtime.py']
