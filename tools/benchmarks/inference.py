"""Images per second of the inferencer's model path, against the bare image tower.

    python tools/benchmarks/inference.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth

All get the same batch in turns, and the medians are compared, so that a busy machine slows all.
The bare tower is the image tower with LoRA merged and nothing behind it; the model path goes from
the same pixels to the probabilities of all pairs, and should take at most 1.05 times as long; the
answers are Python objects with the names of the best pairs, which cost the same for every tower.
"""
import argparse
import statistics
import time
from collections.abc import Callable

import torch

from mmcluspro import TrainedModel, load
from mmcluspro.engine.messages import run_command
from mmcluspro.evaluation import probabilities


def seconds(function: Callable[[], object], device: torch.device) -> float:
    """Time of one call, with the device's queue empty before and after."""
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def compare(inferencer: TrainedModel, size: int, batch_size: int, repeats: int,
            world: str = 'closed', top_k: int = 5) -> dict[str, float]:
    """Median times of both, interleaved.

    Args:
        inferencer (TrainedModel): The model.
        size (int): Image side.
        batch_size (int): Images at once.
        repeats (int): Measured rounds, after three that are not.
        world (str): Whose pairs. Defaults to 'closed'.
        top_k (int): Answers an image. Defaults to 5.

    Returns:
        dict: Seconds of ``tower``, ``model`` (to probabilities) and ``answers``.
    """
    generator = torch.Generator().manual_seed(0)
    images = [torch.randint(256, (3, size, size), dtype=torch.uint8, generator=generator)
              for _ in range(batch_size)]
    candidates = inferencer.candidates(world=world)
    calibration = inferencer.calibration(world)
    inferencer.features(images)  # folds LoRA into the weights
    model = inferencer.network

    def prepare() -> torch.Tensor:
        return model.data_preprocessor(dict(inputs=list(images)))['inputs']

    def tower() -> object:
        with torch.inference_mode():
            return model.backbone(prepare())

    def scored() -> object:
        with torch.inference_mode():
            score = inferencer.score(inferencer.features(images), candidates).pair
            return probabilities(score, candidates.seen, calibration, model.head.link)

    def answers() -> object:
        return list(inferencer.answer(inferencer.score(
            inferencer.features(images), candidates), candidates, calibration, top_k))

    paths = dict(tower=tower, model=scored, answers=answers)
    times: dict[str, list[float]] = {name: [] for name in paths}
    for step in range(repeats + 3):
        for name, function in paths.items():
            spent = seconds(function, inferencer.device)
            if step >= 3:
                times[name].append(spent)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint')
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--repeats', type=int, default=31)
    parser.add_argument('--world', choices=['closed', 'open'], default='closed')
    parser.add_argument('--device', help='default: a GPU if there is one')
    args = parser.parse_args()
    inferencer = load(args.checkpoint, args.device)
    found = compare(inferencer, inferencer.size or 224, args.batch_size, args.repeats, args.world)
    pairs = len(inferencer.candidates(world=args.world).pairs)
    print(f'{torch.get_num_threads()} threads, {inferencer.device}, batch {args.batch_size}, '
          f'{pairs} pairs, median of {args.repeats}')
    for name, text in (('tower', 'image tower alone'), ('model', 'torch, to probabilities'),
                       ('answers', 'torch, to answers')):
        print(f'{text:<24}{args.batch_size / found[name]:8.1f} images/s, ratio '
              f'{found[name] / found["tower"]:.3f}')


if __name__ == '__main__':
    run_command(main)
