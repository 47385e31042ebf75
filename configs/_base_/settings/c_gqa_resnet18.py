"""C-GQA as stored features of ResNet-18 with the schedule of the zoo, and the runtime."""
_base_ = ['../datasets/c_gqa_resnet18.py', '../schedules/zoo.py', '../default_runtime.py']
