"""modes.py: clusters are compared with the hidden mode and with the other primitive."""
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'analysis_tools' / 'modes.py'


class Samples:
    """Two attributes on four objects; the mode is the parity of the object, but in one image."""

    def __init__(self):
        self.attr = torch.arange(2).repeat_interleave(40)
        self.obj = torch.arange(4).repeat(20)
        self.mode = self.obj % 2
        self.mode[0] = 1 - self.mode[0]

    def __len__(self):
        return len(self.attr)

    def get_data_info(self, idx):
        return dict(attr_mode=int(self.mode[idx]), obj_mode=0)


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location('modes_tool', TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    samples = Samples()
    # Features of attributes tell the object, exactly; those of objects tell the attribute.
    features = dict(attr=torch.eye(4)[samples.obj], obj=torch.eye(2)[samples.attr])
    monkeypatch.setattr(module, 'cluster_features', lambda *rest: (
        features, dict(attr=samples.attr, obj=samples.obj)))
    module.trained = SimpleNamespace(
        network=SimpleNamespace(head=SimpleNamespace(clustered={})), dataset=lambda phase: samples)
    return module


def test_clusters_of_the_partner_are_told_from_clusters_of_the_mode(tool):
    rows = tool.measure(tool.trained, 4)

    assert rows['attr_kmeans_partner'] == pytest.approx(1.0)
    # Four clusters that know the mode: NMI = I / mean(H) = 1 bit / 1.5 bits, but for one image.
    assert rows['attr_kmeans_mode'] == pytest.approx(2 / 3, abs=0.05)
    assert rows['attr_mode_partner'] == pytest.approx(2 / 3, abs=0.05)
    assert rows['attr_chance_partner'] < 0.2 and rows['attr_chance_mode'] < 0.2
    assert rows['obj_kmeans_partner'] == pytest.approx(1.0)
    assert 'attr_prototypes_mode' not in rows


def test_the_table_has_both_targets_and_all_seeds(tool, tmp_path, capsys):
    lines = [dict(checkpoint=f'work_dirs/cluspro_shapes_seed{seed}/best.pth', agreement={
        f'{branch}_kmeans_{target}': value + (target == 'partner') * 0.1
        for branch in ('attr', 'obj') for target in ('mode', 'partner')})
        for seed, value in enumerate((0.2, 0.4))]
    file = tmp_path / 'modes.jsonl'
    file.write_text(''.join(json.dumps(line) + '\n' for line in lines))

    tool.print_rows(tool.read_file(file))

    assert capsys.readouterr().out.splitlines()[2:] == [
        '| cluspro_shapes | k-means | 0.300 ± 0.141 | 0.400 ± 0.141 | 0.300 ± 0.141 | '
        '0.400 ± 0.141 | 2 |']

