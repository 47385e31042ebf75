import numpy as np
import pytest

from mmcluspro.visualization.prototypes import PrimitiveBlock, PrototypeRow, draw_prototypes
from mmcluspro.visualization.style import WIDTH, WRONG


def make_block(title, sizes):
    return PrimitiveBlock(title, [
        PrototypeRow([np.full((6, 6, 3), 20 * n + i, np.uint8) for i in range(size)],
                     share=1 / len(sizes)) for n, size in enumerate(sizes)])


@pytest.mark.parametrize('blocks', [
    [make_block('red', [1])],
    [make_block('red', [5] * 5), make_block('star', [5, 3, 0])],
    [make_block(f'{n}, a very long name of a primitive (attribute, 12345 images)', [8] * 3)
     for n in range(3)],
])
def test_draws_the_images_of_each_prototype(blocks, legible):
    figure = draw_prototypes(blocks)

    images = [image for block in blocks for row in block.rows for image in row.images]
    assert len(figure.axes) == len(images)
    for axes, image in zip(figure.axes, images):
        np.testing.assert_array_equal(axes.images[0].get_array(), image)
        box = axes.get_position()
        assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
    assert figure.get_size_inches()[0] == WIDTH
    legible(figure)


def test_says_shares_and_dead_prototypes():
    block = make_block('red', [2, 2, 0])
    block.rows[0].share, block.rows[1].dead = 0.613, True

    figure = draw_prototypes([block])

    words = {text.get_text(): text.get_color() for text in figure.texts}
    assert words == {'red': 'black', '1: 61%': 'black', '2: dead': WRONG, '3: 33%': 'black',
                     'no image': '#666666'}
    assert [axes.images[0].get_alpha() for axes in figure.axes] == [1.0, 1.0, 0.4, 0.4]


@pytest.mark.parametrize('blocks', [[], [PrimitiveBlock('red')]])
def test_nothing_to_draw_is_an_error(blocks):
    with pytest.raises(ValueError, match='at least one prototype'):
        draw_prototypes(blocks)
