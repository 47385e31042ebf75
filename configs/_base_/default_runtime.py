"""Runtime: scope, hooks, logs. The same for every config."""
default_scope = 'mmpretrain'

default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    # Two: the older one is whole while the newer one is written.
    checkpoint=dict(
        type='CheckpointHook', interval=1, max_keep_ckpts=2, save_best='czsl/auc',
        rule='greater'),
    sampler_seed=dict(type='DistSamplerSeedHook'))
custom_hooks = [
    dict(type='mmcluspro.CompositionHook'),
    dict(type='mmcluspro.EpochSeedHook'),
]

env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'))

vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends)

log_level = 'INFO'
load_from = None
resume = False
randomness = dict(seed=0, deterministic=False)
# After training, tools/train.py tests the checkpoint that was best on validation.
final_test = True
