"""Word-vector methods, on stored features: of ResNet-18 as published, DINOv2-S or the tiny CLIP."""
datasets = ('utzappos', 'mitstates', 'cgqa', 'photographs', 'shapes')
_base_ = dict(
    published=[
        '../_base_/models/zoo_resnet18.py', '../_base_/datasets/{dataset}.py',
        '../_base_/datasets/images_256.py', '_resnet18.py',
        '../_base_/schedules/zoo.py', '../_base_/default_runtime.py'],
    photographs=[
        '../_base_/models/zoo_dinov2.py', '../_base_/datasets/{stored}.py',
        '../_base_/schedules/fashion_features.py', '../_base_/default_runtime.py'],
    shapes=[
        '../_base_/models/zoo_tiny.py', '../_base_/datasets/shapes_features.py',
        '../_base_/schedules/shapes.py', '../_base_/default_runtime.py'])
