"""Reading images against computing with them, at 224 px: CPU time of one run.

read        Milliseconds per JPEG for the training pipeline: as shipped, with JPEG's draft mode
            (``LoadReduced``), and with pixels that are kept (``KeepPrepared``); and how many reader
            processes keep up with one thread of a training step of an untrained ViT-B/32.
decoders    A JPEG to pixels: our reader with its checks, beside OpenCV, torchvision.io,
            Pillow, and Pillow's draft mode for 224 pixels.
workers     Memory of the reader processes by their number, for a list of 30,000 images.
extraction  Feature extraction against the bare tower.

Usage: python tools/benchmarks/loading.py [--images 24] [--width 640] [--height 480] [--decoders]
"""
import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from mmengine.dataset import Compose
from mmengine.registry import MODELS, init_default_scope
from PIL import Image
from torch.utils.data import DataLoader

import mmcluspro.models  # noqa: F401  (registers the parts)
from mmcluspro.datasets import TableCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.features import frozen_encoder, start_folder, write_phase

CONFIG = 'baseline_utzappos.py'
TOWER = dict(type='mmcluspro.CLIPVision', arch='ViT-B-32', pretrained=None)


def cpu_seconds():
    """CPU time of this process and of its children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def draw(folder, number, width, height):
    """JPEG files with smooth parts and texture, and their table."""
    generator, rows = np.random.default_rng(0), ['image,attribute,object,split']
    for i in range(number):
        small = generator.integers(256, size=(12, 16, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        noise = generator.normal(0, 8, (height, width, 3))
        pixels = np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f'{i}.jpg', quality=90)
        rows.append(f'{i}.jpg,{"red" if i % 2 else "old"},{"car" if i % 4 < 2 else "cat"},train')
    (folder / 'table.csv').write_text('\n'.join(rows))


def pipelines(folder):
    """The training pipeline of the configs, and two that read faster."""
    shipped = [dict(step) for step in read_config(CONFIG).train_pipeline][:-1]
    return {'as shipped': shipped,
            'draft mode': [dict(type='mmcluspro.LoadReduced', size=224), *shipped[1:]],
            'kept pixels': [dict(type='mmcluspro.KeepPrepared', steps=shipped[:3],
                                 folder=str(folder / 'kept')), *shipped[3:]]}


def time_reading(folder, number):
    """Seconds per image by pipeline, and of it what comes before augmentation."""
    infos = [dict(img_path=str(folder / f'{i}.jpg')) for i in range(number)]
    found = {}
    for name, steps in pipelines(folder).items():
        before = 1 if name == 'kept pixels' else 3
        times = []
        for part in (Compose(steps), Compose(steps[:before])):
            for _ in range(2):  # the first round fills caches
                start = time.process_time()
                for info in infos:
                    part(dict(info))
                spent = (time.process_time() - start) / number
            times.append(spent)
        found[name] = times
    return found


def time_decoders(folder, number, rounds=7):
    """Least CPU milliseconds per JPEG by decoder, in turns."""
    import cv2
    from torchvision.io import decode_jpeg, read_file

    from mmcluspro.datasets.pictures import read_picture

    def pillow(path, draft):
        with Image.open(path) as image:
            if draft:
                image.draft('RGB', (224, 224))
            return np.asarray(image.convert('RGB'))

    decoders = {
        'our reader': read_picture, 'OpenCV': cv2.imread,
        'torchvision.io': lambda path: decode_jpeg(read_file(path)),
        'Pillow': lambda path: pillow(path, False),
        'Pillow, draft mode': lambda path: pillow(path, True)}
    found = dict.fromkeys(decoders, 1e9)
    for _ in range(rounds):
        for name, decode in decoders.items():
            start = time.process_time()
            for i in range(number):
                decode(str(folder / f'{i}.jpg'))
            found[name] = min(found[name], 1e3 * (time.process_time() - start) / number)
    return found


def time_tower(batch):
    """Seconds per image of a forward pass, and of a training step with LoRA."""
    torch.manual_seed(0)
    images = torch.randn(batch, 3, 224, 224)
    tower = MODELS.build(dict(TOWER, peft=dict(type='mmcluspro.LoRA', rank=16, alpha=16))).train()

    def step():
        tower(images)[-1].sum().backward()

    def forward():
        with torch.inference_mode():
            tower(images)

    return [min(_once(call) for _ in range(2)) / batch for call in (forward, step)]


def _once(call):
    start = time.process_time()
    call()
    return time.process_time() - start


class Waiting(torch.utils.data.Dataset):
    """A list of images of which nothing is decoded."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, index):
        self.dataset.get_data_info(index)
        return 0

    def __len__(self):
        return len(self.dataset)


def worker_memory(folder, length=30_000, numbers=(1, 2, 4)):
    """MB that belong to each reader process alone, by the number of processes."""
    rows = ['image,attribute,object,split'] + [
        f'empty{i}.jpg,red,car,train' for i in range(length)]
    for i in range(length):
        (folder / f'empty{i}.jpg').touch()
    (folder / 'long.csv').write_text('\n'.join(rows))
    dataset = TableCZSL(data_root=str(folder), table='long.csv', pipeline=[], phase='train')
    found = {}
    for number in numbers:
        loader = iter(DataLoader(Waiting(dataset), batch_size=256, num_workers=number,
                                 persistent_workers=False))
        for _ in range(2 * number):
            next(loader)
        own = []
        for worker in loader._workers:
            lines = Path(f'/proc/{worker.pid}/smaps_rollup').read_text().splitlines()
            own.append(sum(int(line.split()[1]) for line in lines
                           if line.startswith(('Private_Dirty', 'Private_Clean'))) / 1000)
        found[number] = max(own)
        del loader
    return found


def time_extraction(folder, batch):
    """CPU time of extraction over that of the bare tower, and images per second of both."""
    pipeline = read_config(CONFIG).test_pipeline
    dataset = TableCZSL(data_root=str(folder), table='table.csv', pipeline=pipeline, phase='train',
                        test_mode=True)
    tower, encode, facts = frozen_encoder(TOWER)
    prepare = MODELS.build(dict(type='mmpretrain.ClsDataPreprocessor', mean=[120] * 3,
                                std=[60] * 3, to_rgb=True))
    images = torch.randn(batch, 3, 224, 224)
    start_folder(folder / 'features', dict(facts, pipeline=pipeline, preprocessor={},
                                           dtype='float32', shard_size=4096))

    @torch.inference_mode()
    def features(inputs):
        return encode(prepare(dict(inputs=inputs))['inputs'])

    with torch.inference_mode():
        tower(images)
        start = cpu_seconds(), time.monotonic()
        for _ in range(len(dataset) // batch):
            tower(images)
        bare = cpu_seconds() - start[0], time.monotonic() - start[1]
    start = cpu_seconds(), time.monotonic()
    write_phase(dataset, features, folder / 'features', 'train', batch, workers=1)
    whole = cpu_seconds() - start[0], time.monotonic() - start[1]
    return whole[0] / bare[0], len(dataset) / whole[1], len(dataset) / bare[1]


def measure(number, width, height):
    """All numbers as a dict."""
    init_default_scope('mmpretrain')
    number -= number % 8
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder, number, width, height)
        forward, step = time_tower(8)
        reading = time_reading(folder, number)
        workers = worker_memory(folder)
        ratio, speed, bare = time_extraction(folder, 8)
    return dict(
        jpeg=[width, height], forward_ms=1e3 * forward, step_ms=1e3 * step,
        read_ms={name: 1e3 * whole for name, (whole, _) in reading.items()},
        before_augmentation_ms={name: 1e3 * part for name, (_, part) in reading.items()},
        worker_mb=workers, extraction_cpu_ratio=ratio, extraction_per_second=speed,
        tower_per_second=bare)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--images', type=int, default=24)
    parser.add_argument('--width', type=int, default=640)
    parser.add_argument('--height', type=int, default=480)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--decoders', action='store_true', help='measure the decoders alone')
    parser.add_argument('--json', action='store_true', help='print a record instead of a table')
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.decoders:
        with tempfile.TemporaryDirectory() as folder:
            draw(Path(folder), args.images, args.width, args.height)
            for name, spent in time_decoders(Path(folder), args.images).items():
                print(f'{name:<20} {spent:5.2f} ms')
        return
    found = measure(args.images, args.width, args.height)
    if args.json:
        print(json.dumps(found))
        return
    print(f'ViT-B/32, per image: forward {found["forward_ms"]:.0f} ms, training step '
          f'{found["step_ms"]:.0f} ms')
    for name, spent in found['read_ms'].items():
        print(f'{name:<12} {spent:6.1f} ms, before augmentation '
              f'{found["before_augmentation_ms"][name]:5.1f} ms, '
              f'{spent / found["step_ms"]:.2f} of a step')
    for number, size in found['worker_mb'].items():
        print(f'{number} readers: {size:.0f} MB of their own each')
    print(f'extraction: {found["extraction_cpu_ratio"]:.3f}x the CPU time of the bare tower, '
          f'{found["extraction_per_second"]:.1f} images/s ({found["tower_per_second"]:.1f})')


if __name__ == '__main__':
    main()
