"""TensorBoard gets numbers and the curve, with nothing but a field of the config."""
import io
import json

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow


def test_training_writes_scalars_and_the_curve(tmp_path, train_briefly):
    accumulator = pytest.importorskip('tensorboard.backend.event_processing.event_accumulator')

    train_briefly(tmp_path, 'cluspro_shapes.py', {'visualizer.vis_backends': [
        dict(type='LocalVisBackend'), dict(type='TensorboardVisBackend')]})

    folder = next(tmp_path.glob('*/vis_data'))
    events = accumulator.EventAccumulator(str(folder), {'images': 0, 'scalars': 0}).Reload()
    lines = [json.loads(line) for line in (folder / 'scalars.json').read_text().splitlines()]
    stored = [line['czsl/auc'] for line in lines if 'czsl/auc' in line]
    assert [event.value for event in events.Scalars('czsl/auc')] == pytest.approx(stored)
    assert {'loss', 'pcl_loss', 'lr', 'attr_used', 'obj_balance'} <= set(events.Tags()['scalars'])
    picture, = events.Images('val_curve')
    with Image.open(io.BytesIO(picture.encoded_image_string)) as shown, \
            Image.open(tmp_path / 'val_curve.png') as written:
        np.testing.assert_array_equal(np.asarray(shown), np.asarray(written.convert('RGB')))
