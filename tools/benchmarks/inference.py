"""Images per second of the inferencer's model path, against the bare image tower.

    python tools/benchmarks/inference.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_20.pth

Both get the same batches in turns, and the medians are compared, so that a busy machine slows both.
The bare tower is the image tower with LoRA merged and nothing behind it; the model path goes from
pixels in memory to the best pairs. The ratio should stay below 1.05.
"""
import argparse
import statistics
import time
from collections.abc import Callable

import torch

from mmcluspro import CZSLInferencer
from mmcluspro.engine.launch import run_command


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """Time of one call, with the device's queue empty before and after."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def compare(inferencer: CZSLInferencer, size: int, batch_size: int, repeats: int,
            world: str = 'closed', top_k: int = 5) -> dict[str, float]:
    """Median times of both, interleaved.

    Args:
        inferencer (CZSLInferencer): The model.
        size (int): Image side.
        batch_size (int): Images at once.
        repeats (int): Measured rounds, after three that are not.
        world (str): Whose pairs. Defaults to 'closed'.
        top_k (int): Answers an image. Defaults to 5.

    Returns:
        dict: ``tower`` and ``model`` in images per second, and ``ratio`` of their times.
    """
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(256, (3, size, size), dtype=torch.uint8, generator=generator)
              for _ in range(batch_size)]
    candidates = inferencer.candidates(world=world)
    calibration = inferencer.calibration(world)
    model = inferencer.model

    def prepare() -> torch.Tensor:
        return model.data_preprocessor(dict(inputs=list(images)))['inputs']

    def tower() -> object:
        with torch.inference_mode():
            return model.backbone(prepare())

    def whole() -> object:
        return list(inferencer.rank(images, candidates, calibration, top_k))

    times: dict[str, list[float]] = dict(tower=[], model=[])
    for step in range(repeats + 3):
        for name, function in (('tower', tower), ('model', whole)):
            spent = seconds(function, inferencer.device)
            if step >= 3:
                times[name].append(spent)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return dict(tower=batch_size / medians['tower'], model=batch_size / medians['model'],
                ratio=medians['model'] / medians['tower'])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=31)
    parser.add_argument('--world', choices=['closed', 'open'], default='closed')
    parser.add_argument('--device', help='default: a GPU if there is one')
    args = parser.parse_args()
    inferencer = CZSLInferencer(args.checkpoint, args.device)
    found = compare(inferencer, inferencer.size or 224, args.batch_size, args.repeats, args.world)
    pairs = len(inferencer.candidates(world=args.world).pairs)
    print(f'{torch.get_num_threads()} threads, {inferencer.device}, batch {args.batch_size}, '
          f'{pairs} pairs, median of {args.repeats}')
    print(f'image tower alone: {found["tower"]:8.1f} images/s')
    print(f'torch, to answers: {found["model"]:8.1f} images/s, ratio {found["ratio"]:.3f}')


if __name__ == '__main__':
    run_command(main)
