"""Runtime: scope, hooks, metrics, logs. The same for every config."""
default_scope = 'mmpretrain'
# Resumes inside an epoch, to the last bit.
runner_type = 'mmcluspro.ResumableRunner'

default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    # Two: the older one is whole while the newer one is written.
    checkpoint=dict(
        type='mmcluspro.SafeCheckpointHook', interval=1, max_keep_ckpts=2, save_best='czsl/auc',
        rule='greater'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    # Stops at the first NaN or infinity, before it is saved.
    finite=dict(type='mmcluspro.FiniteHook'),
    # SIGTERM, SIGHUP and Slurm's SIGUSR1 save, then end with exit code 75.
    stop=dict(type='mmcluspro.StopHook'),
    # Data, model and checkpoint must have the same labels.
    labels=dict(type='mmcluspro.LabelsHook'),
    # Which pairs are scored, which of the open world are feasible, and what validation chose, which
    # goes to the test and into the checkpoint. The test also says what `mmcluspro predict` will
    # get right.
    evaluation=dict(type='mmcluspro.EvaluationHook'),
    curve=dict(type='mmcluspro.CurveHook'),
    # Which classes of the test are worst.
    class_tables=dict(type='mmcluspro.ClassTablesHook'),
    epoch_seed=dict(type='mmcluspro.EpochSeedHook'),
    # Memory that training needs, and a warning where the GPU has less.
    memory=dict(type='mmcluspro.MemoryHook'),
    # Does nothing for heads without prototypes.
    prototypes=dict(type='mmcluspro.PrototypeHook'),
    # Validates a resumed checkpoint first if its validation was interrupted.
    resume=dict(type='mmcluspro.ResumeHook'),
    # What a checkpoint says about its model, so that it predicts alone.
    description=dict(type='mmcluspro.DescriptionHook'))
# Hooks of your own go here; those above stay.
custom_hooks = []

# The open-world threshold is chosen on validation and stored with the checkpoint.
val_evaluator = [
    dict(type='mmcluspro.CZSLMetric', world='closed'),
    dict(type='mmcluspro.CZSLMetric', world='open', threshold='search'),
]
test_evaluator = [
    dict(type='mmcluspro.CZSLMetric', world='closed'),
    dict(type='mmcluspro.CZSLMetric', world='open', threshold='stored'),
]

env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    # A job whose ranks wait longer than this for one of them ends with an error.
    dist_cfg=dict(backend='nccl', timeout=300))

vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='UniversalVisualizer', vis_backends=vis_backends)

log_level = 'INFO'
load_from = None
resume = False
randomness = dict(seed=0, deterministic=False)
# After training, tools/train.py tests the checkpoint that was best on validation.
final_test = True
