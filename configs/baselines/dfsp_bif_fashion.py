"""DFSP (BiF) on stored features: fusion in both directions, in bfloat16 like i2t."""
_base_ = 'dfsp_i2t_fashion.py'
model = dict(head=dict(direction='BiF'))
