"""UT-Zappos as stored features of ResNet-18 with the schedule of the zoo, and the runtime."""
_base_ = ['../datasets/ut_zappos_resnet18.py', '../schedules/zoo.py', '../default_runtime.py']
