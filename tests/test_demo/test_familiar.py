"""Pictures unlike those of training: measured on drawings, noise, textures and photographs."""
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from mmcluspro import load
from mmcluspro.artefact.familiar import Familiar
from mmcluspro.artefact.images import Item
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.errors import FileError


def noise(generator):
    return Image.fromarray(generator.integers(0, 256, (64, 80, 3), dtype=np.uint8))


def stripes(generator):
    first, second = (tuple(generator.integers(0, 256, 3).tolist()) for _ in range(2))
    image, width = Image.new('RGB', (90, 90), first), int(generator.integers(4, 16))
    draw = ImageDraw.Draw(image)
    for left in range(0, 90, 2 * width):
        draw.rectangle((left, 0, left + width - 1, 90), fill=second)
    return image.rotate(int(generator.integers(0, 90))).crop((15, 15, 75, 75))


def photograph(generator):
    sample = pytest.importorskip('sklearn.datasets').load_sample_images()
    image = Image.fromarray(sample.images[int(generator.integers(2))])
    side, left, top = (int(generator.integers(low, high))
                       for low, high in ((60, 127), (0, 500), (0, 300)))
    return image.crop((left, top, left + side, top + side))


def strange(model, images):
    """Share of images that are unlike the training pictures."""
    found = [model.familiar.is_strange(model.prepare(Item('x', image))[0]) for image in images]
    return np.mean(found)


@pytest.mark.parametrize('draw, least', [(noise, 1.0), (stripes, 0.8), (photograph, 0.8)])
def test_what_no_training_picture_looks_like_is_told(draw, least, zero_shot):
    generator = np.random.default_rng(0)
    assert strange(zero_shot.model, [draw(generator) for _ in range(40)]) >= least


@pytest.mark.parametrize('seen', [True, False])
def test_few_test_pictures_get_the_remark_also_those_of_unseen_pairs(seen, zero_shot):
    data = ShapesCZSL(phase='test')
    infos = [data.get_data_info(index) for index in range(0, len(data), 2)]
    images = [info['img'] for info in infos if bool(data.space.seen[info['pair_label']]) == seen]
    assert len(images) > 200 and strange(zero_shot.model, images) <= 0.03


def test_the_threshold_is_a_quantile_of_held_out_distances(zero_shot):
    class Few(ShapesCZSL):
        """Every sixth picture."""

        def full_init(self):
            if not self._fully_initialized:
                super().full_init()
                self.get_subset_(list(range(0, len(self), 6)))

    found = Familiar.of(zero_shot.model.prepare, Few(phase='train'), Few(phase='val'))
    exact = found.distances(found.looks.float())
    assert len(found.looks) == len(Few(phase='train')) and float(exact.abs().max()) == 0.0
    # Pictures that are in both lists do not count for themselves.
    same = Familiar.of(zero_shot.model.prepare, Few(phase='train'), Few(phase='train'))
    assert same.threshold > 0.5 and abs(same.threshold / found.threshold - 1) < 0.5


def test_a_checkpoint_keeps_it_and_damage_is_named(cluspro_file, zero_shot, tmp_path):
    content = torch.load(cluspro_file, weights_only=True)
    assert load(cluspro_file, 'cpu').familiar is None
    content['meta']['familiar'] = zero_shot.model.familiar.to_meta()
    torch.save(content, tmp_path / 'with.pth')
    kept = load(tmp_path / 'with.pth', 'cpu').familiar
    assert kept.threshold == zero_shot.model.familiar.threshold
    assert torch.equal(kept.looks, zero_shot.model.familiar.looks)
    for change in (dict(threshold=float('nan')), dict(threshold=True), dict(looks=[1.0]),
                   dict(looks=kept.looks[:, :3]), dict(looks=kept.looks * torch.inf),
                   dict(looks=kept.looks.to_sparse()), dict(looks=kept.looks.to('meta'))):
        content['meta']['familiar'] = {**kept.to_meta(), **change}
        torch.save(content, tmp_path / 'damaged.pth')
        with pytest.raises(FileError, match='meta.familiar'):
            load(tmp_path / 'damaged.pth', 'cpu')
