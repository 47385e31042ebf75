"""'ResNet' and 'mmpretrain.ResNet' are one backbone, and building it says nothing."""
import torch

from mmcluspro.features.source import build_frozen, scoped, source_facts


def test_a_name_without_package_is_mmpretrains():
    short, long = (dict(type=kind, depth=18) for kind in ('ResNet', 'mmpretrain.ResNet'))
    assert scoped(short) == scoped(long) == long
    assert source_facts(short) == source_facts(long)
    assert scoped(dict(type=torch.nn.Identity))['type'] is torch.nn.Identity


def test_it_is_built_without_lines_about_each_parameter(caplog, capsys):
    tower, _, learns = build_frozen(dict(type='ResNet', depth=18))
    assert learns and not any(p.requires_grad for p in tower.parameters())
    said = capsys.readouterr()
    assert 'KaimingInit' not in said.out + said.err + caplog.text
