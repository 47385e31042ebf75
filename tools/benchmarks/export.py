"""Exported files on the test split: AUC, size, speed, all measured in the same run.

A checkpoint is exported in single and half precision and with eight-bit weights; each file scores
the pairs of the test split through the consumer of the docs (numpy), torch through the model
itself. Beside them runs the bare image tower, in torch and as a graph of its own: what the adapters
and the comparison with the texts cost is the ratio to it. All take turns, one thread each; speed is
the median CPU time, and a ratio the median of the ratios within a turn: other load on the machine
comes and goes, and disturbs neighbours alike.

Usage: python tools/benchmarks/export.py CHECKPOINT [--out FOLDER] [--repeats 40] [--batch 64]
"""
import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.registry import init_default_scope
from torch import Tensor

from mmcluspro import TrainedModel, load
from mmcluspro.engine.messages import run_command
from mmcluspro.evaluation import CZSLMetric
from mmcluspro.export import export_model
from mmcluspro.export.export_command import open_session
from mmcluspro.export.image_side import ImageSide, write_onnx
from mmcluspro.export.text_table import read_table
from mmcluspro.models import Candidates
from mmcluspro.models.peft import merge

ROOT = Path(__file__).resolve().parents[2]


def read_consumer() -> Any:
    """The module docs/examples/onnx_predict.py."""
    spec: Any = importlib.util.spec_from_file_location(
        'onnx_predict', ROOT / 'docs' / 'examples' / 'onnx_predict.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_split(model: TrainedModel) -> tuple[Any, np.ndarray, np.ndarray]:
    """Space, pictures (N, H, W, 3) in RGB, and the index of the true pair, (N,)."""
    dataset = model.dataset('test')
    samples = [dataset[i] for i in range(len(dataset))]
    images = torch.stack([sample['inputs'] for sample in samples])
    labels = torch.tensor([[int(sample['data_samples'].get(name)) for name in (
        'attr_label', 'obj_label')] for sample in samples])
    pixels = images.flip(1).permute(0, 2, 3, 1).contiguous().numpy()
    return dataset.space, pixels, dataset.space.lookup(*labels.T).numpy()


def scorers(model: Any, space: Any, folder: Path) -> dict[str, Callable[[np.ndarray], Any]]:
    """Ways from pictures (B, H, W, 3) to scores or, for the bare tower, to features."""
    consumer = read_consumer()
    table = read_table(folder / 'model.npz')
    info = json.loads(str(table['info']))
    head, candidates = model.head, Candidates.from_space(space)

    def in_torch(images: np.ndarray) -> Tensor:
        bgr = torch.from_numpy(images).permute(0, 3, 1, 2).flip(1)
        inputs = model.data_preprocessor(dict(inputs=list(bgr)))['inputs']
        return head.score(model.extract_feat(inputs), candidates).pair

    def bare(images: np.ndarray) -> Tensor:
        bgr = torch.from_numpy(images).permute(0, 3, 1, 2).flip(1)
        return model.backbone(model.data_preprocessor(dict(inputs=list(bgr)))['inputs'])[-1]

    def graph(name: str) -> Callable[[np.ndarray], Any]:
        session = open_session(folder / name, threads=1)
        if name == 'tower.onnx':
            return lambda images: session.run(None, {'image': images})
        return lambda images: consumer.pair_scores(
            session.run(None, {'image': images}), table, info)

    return {
        'torch, bare image tower': bare, 'torch': in_torch,
        'ONNX, bare image tower': graph('tower.onnx'), 'ONNX fp32': graph('model.onnx'),
        'ONNX fp16': graph('model_fp16.onnx'), 'ONNX int8': graph('model_int8.onnx')}


def write_tower(model: Any, path: Path, size: int) -> None:
    """The image tower alone, to compare with."""
    side = ImageSide(model).eval()
    side.neck, side.paths, side.names = None, side.paths[-1:], side.names[-1:]
    write_onnx(side, path, size, {})


def measure(model: Any, folder: Path, args: argparse.Namespace, space: Any, images: np.ndarray,
            targets: np.ndarray) -> dict[str, dict[str, float]]:
    """AUC (percent), images per second and bytes of each way."""
    merge(model.backbone, keep=False)
    ways = scorers(model, space, folder)
    files = {'ONNX fp32': 'model', 'ONNX fp16': 'model_fp16', 'ONNX int8': 'model_int8'}
    result: dict[str, dict[str, float]] = {name: {} for name in ways}
    chunks = [images[i:i + args.batch] for i in range(0, len(images), args.batch)]
    for name, way in ways.items():
        if 'tower' not in name:
            scores = np.concatenate([np.asarray(way(chunk)) for chunk in chunks])
            numbers = CZSLMetric.calculate(
                scores, targets, space.seen,
                bias_on='log' if model.head.link == 'log' else 'score')
            result[name].update(auc=numbers['auc'], hm=numbers['hm'])
        if name in files:
            result[name]['bytes'] = (folder / f'{files[name]}.onnx').stat().st_size
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats):
        for name, way in ways.items():
            begin = time.process_time()
            for chunk in chunks[:2]:
                way(chunk)
            times[name].append(time.process_time() - begin)
    for name, seconds in times.items():
        tower = times[f'{name.split(",")[0].split()[0]}, bare image tower']
        result[name].update(
            images_per_second=sum(map(len, chunks[:2])) / float(np.median(seconds)),
            over_torch=float(np.median(np.divide(seconds, times['torch']))),
            over_tower=float(np.median(np.divide(seconds, tower))))
    return result


def show(result: dict[str, dict[str, float]]) -> None:
    """Prints a Markdown table."""
    print('| | AUC | HM | file, MB | images/s | time over torch | time over its bare tower |')
    print('|---|---|---|---|---|---|---|')
    for name, numbers in result.items():
        print(f'| {name} |', ' | '.join([
            *(f'{numbers[key]:.2f}' if key in numbers else '–' for key in ('auc', 'hm')),
            f'{numbers["bytes"] / 1e6:.2f}' if 'bytes' in numbers else '–',
            f'{numbers["images_per_second"]:.0f}', f'{numbers["over_torch"]:.2f}',
            f'{numbers["over_tower"]:.2f}']), '|')


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('checkpoint')
    parser.add_argument('--out', help='folder for the exported files (default: a temporary one)')
    parser.add_argument('--repeats', type=int, default=40)
    parser.add_argument('--batch', type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    init_default_scope('mmpretrain')
    with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
        folder = Path(args.out or temporary)
        trained = load(args.checkpoint, 'cpu')
        model = trained.network
        space, images, targets = test_split(trained)
        names = [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]
        export_model(args.checkpoint, folder / 'model.onnx', pairs=names,
                     variants=('fp16', 'int8'))
        info = json.loads(str(read_table(folder / 'model.npz')['info']))
        write_tower(model, folder / 'tower.onnx', info['preprocessing']['size'])
        show(measure(model, folder, args, space, images, targets))


if __name__ == '__main__':
    run_command(main)
