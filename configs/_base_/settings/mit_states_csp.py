"""MIT-States with CSP's schedule, and the runtime."""
_base_ = ['../datasets/mit_states.py', '../schedules/csp.py', '../default_runtime.py']
