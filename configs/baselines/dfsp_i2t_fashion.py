"""DFSP (i2t) on stored features. Fusion into 95 texts per image is costly, so bfloat16 is on."""
_base_ = 'dfsp_fashion.py'
model = dict(head=dict(direction='i2t'))
optim_wrapper = dict(type='mmcluspro.BFloat16OptimWrapper')
