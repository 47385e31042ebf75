"""C-GQA with CSP's schedule, and the runtime."""
_base_ = ['../datasets/c_gqa.py', '../schedules/csp.py', '../default_runtime.py']
