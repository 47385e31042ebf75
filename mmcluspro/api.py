"""The lines of a notebook: data, a model, training, a test, answers.

::

    import mmcluspro as cz
    data = cz.load_dataset('photos/')  # or ('utzappos', root='data/ut-zap50k')
    model = cz.create_model('cluspro', data, clip='ViT-B-32')
    cz.train(model, data, epochs=15)
    print(cz.test(model, data))  # seen, unseen, hm, auc
    model.save('cluspro.safetensors')
    model = cz.load('cluspro.safetensors')
    for answer in model.predict('new/'):
        print(answer.image, answer.best)
    print(model.scores(images, pairs=[('wet', 'cat')]))
"""
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.evaluator import Evaluator
from mmengine.registry import DefaultScope
from mmengine.runner import set_random_seed
from torch.utils.data import DataLoader

from mmcluspro.artefact import NameScore, PairScore, Prediction, Predictions, TrainedModel
from mmcluspro.datasets import CompositionSpace, build_space, make_split
from mmcluspro.datasets.check import is_own_data, read_photos, too_few_names
from mmcluspro.datasets.folders import undecodable
from mmcluspro.datasets.table_file import table_text
from mmcluspro.engine.configs import dataset_names, merge_options
from mmcluspro.engine.hooks import EvaluationHook
from mmcluspro.engine.hooks.parts import find_hook
from mmcluspro.engine.launch import build_runner, fill_loaders, read_config
from mmcluspro.engine.resuming import find_resumable
from mmcluspro.evaluation import Chosen, CZSLMetric, Evaluation
from mmcluspro.models.clip import arch_config
from mmcluspro.models.sources import TINY
from mmcluspro.registry import MODELS
from mmcluspro.utils.files import configs_folder, write_text
from mmcluspro.utils.locks import work_lock

__all__ = ['Data', 'NameScore', 'PairScore', 'Prediction', 'Predictions', 'TrainedModel',
           'create_model', 'load', 'load_dataset', 'predict', 'test', 'train']

OWN, OWN_TINY = 'own_data', 'own_data_48'  # in the names of configs


@dataclass(frozen=True)
class Data:
    """Images with an attribute and an object each, in three phases.

    Args:
        name (str): In the names of configs, such as 'utzappos' or 'own_data'.
        fields (Mapping): What its class is built with, ``type`` among them.
    """
    name: str
    fields: Mapping[str, Any]

    @cached_property
    def space(self) -> CompositionSpace:
        """The pairs of all phases."""
        return build_space(self.fields)


def load_dataset(source: str | Path, root: str | Path | None = None,
                 work_dir: str | Path | None = None, **fields: Any) -> Data:
    """Finds data: your own photographs, a published dataset, or drawn shapes.

    Photographs without a split get one, which is written to ``table.csv`` in the work folder;
    images that cannot be decoded are left out, with a warning.

    Args:
        source (str | Path): Folder ``attribute_object/`` of images, table
            ``image,attribute,object`` (and ``split``), or a name: 'utzappos', 'mitstates', 'cgqa',
            'fashion', 'shapes' …
        root (str | Path, optional): Folder of a published dataset. Defaults to None: the one
            that the configs name.
        work_dir (str | Path, optional): For the table of photographs. Defaults to None:
            ``work_dirs/`` and the name of the folder.
        **fields: Further fields of the dataset.

    Examples:
        >>> data = load_dataset('shapes')
        >>> data.space
        CompositionSpace(12 attributes x 12 objects, 144 pairs: 86 seen, 58 unseen)
    """
    names = [name for name in dataset_names() if not name.startswith(OWN)]
    if str(source) in names:
        own = dict(read_config(configs_folder() / f'_base_/datasets/{source}.py').space)
        if root is not None:
            own['data_root'] = str(Path(root).expanduser())
        return Data(str(source), dict(own, **fields))
    if not Path(source).expanduser().exists():
        raise FileNotFoundError(f'{source} does not exist, and is none of the datasets '
                                f'{", ".join(sorted(names))}. Give one of them, or a folder or '
                                'table of images.')
    if not is_own_data(source):
        raise ValueError(f'{source} holds no folders attribute_object/ of images. Of a published '
                         "dataset give the name and the folder: load_dataset('utzappos', "
                         f'root={str(source)!r}).')
    return Data(OWN, dict(_photographs(Path(source).expanduser(), work_dir), **fields))


def _photographs(source: Path, work_dir: str | Path | None) -> dict[str, Any]:
    """Fields of the dataset for a folder or a table."""
    if (source / 'table.csv').is_file():
        source = source / 'table.csv'
    photos = read_photos(source)
    bad = dict(undecodable([photos.files[row.image] for row in photos.rows]))
    rows = [row for row in photos.rows if photos.files[row.image] not in bad]
    left_out = len(bad) + len(photos.missing)
    if left_out:
        first = next(iter(bad.items()), None) or (photos.missing[0].where, photos.missing[0].what)
        warnings.warn(f'{left_out} of {len(photos.rows) + len(photos.missing)} images are left '
                      f'out, such as {first[0]}: {first[1]}.{photos.remark}', stacklevel=3)
    if not rows:
        raise ValueError(f'{source} holds no image that can be read.')
    if source.is_file() and rows[0].split and not left_out:
        return dict(type='mmcluspro.TableCZSL', data_root=str(photos.root.resolve()),
                    table=str(source.resolve()))
    if not rows[0].split:
        few = too_few_names({(row.attribute, row.object) for row in rows})
        if few:
            raise ValueError(f'{source}: {few}.')
        rows = make_split(rows)
    folder = Path(work_dir or Path('work_dirs') / (
        source if source.is_dir() else source.parent).resolve().name)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / 'table.csv', table_text(rows))
    return dict(type='mmcluspro.TableCZSL', data_root=str(photos.root.resolve()),
                table=str((folder / 'table.csv').resolve()))


def create_model(method: str, data: Data, clip: str | Mapping[str, Any] | None = None,
                 **options: Any) -> TrainedModel:
    """A new model for some data.

    Args:
        method (str): A method of the configs, such as 'cluspro', 'baseline', 'csp' or 'troika', or
            a config file.
        data (Data): What it is to be trained on.
        clip (str | Mapping, optional): Architecture with OpenAI's weights ('ViT-B-32'), a file
            of weights, 'tiny_clip' (in the package; it knows drawn shapes and nothing else), or
            ``dict(arch=…, pretrained=…)``. Defaults to None: that of the config.
        **options: Fields of the config by dotted name, such as
            ``**{'model.head.loss_pcl.temperature': 0.1}``.

    Examples:
        >>> model = create_model('cluspro', load_dataset('shapes'))
        >>> type(model.network.head).__name__, len(model.classes)
        ('ClusProHead', 144)
    """
    if clip == TINY and data.name == OWN:
        data = Data(OWN_TINY, data.fields)
    name = Path(method).stem
    if (method, data.name) == ('cluspro', OWN_TINY):
        method = 'cluspro_own_data_tiny.py'
    cfg = read_config(method, None if method.endswith('.py') else data.name)
    cfg.launcher = 'none'
    fill_loaders(cfg, ('train', 'val', 'test'))
    own = data.name.startswith(OWN)
    stem = Path(data.fields['data_root']).name if own else data.name
    cfg.work_dir = cfg.get('work_dir') or f'work_dirs/{name}_{stem}'
    given = dict(options, data=dict(data.fields))
    if clip is not None:
        given['clip'] = _clip(clip)
    merge_options(cfg, given)
    set_random_seed(cfg.randomness.get('seed') or 0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        network = MODELS.build(deepcopy(cfg.model))
    return TrainedModel.of(network.eval(), cfg, name=f'The new {name}')


def _clip(clip: str | Mapping[str, Any]) -> str | dict[str, Any]:
    """Field ``clip`` of a config."""
    if not isinstance(clip, str):
        return dict(clip)
    if clip == TINY:
        return dict(arch=clip, pretrained=clip)
    if Path(clip).expanduser().is_file():
        return str(Path(clip).expanduser().resolve())
    arch_config(clip)  # says which architectures there are
    return dict(arch=clip, pretrained='openai')


def train(model: TrainedModel, data: Data, epochs: int | None = None,
          work_dir: str | Path | None = None, resume: bool = False,
          **options: Any) -> TrainedModel:
    """Trains a model of :func:`create_model`, as ``mmcluspro train`` does.

    The work folder gets checkpoints, log and pictures. The model has the weights that were best on
    validation afterwards, with their bias, threshold and temperature.

    Args:
        model (TrainedModel): It is changed.
        data (Data): What to train and validate on.
        epochs (int, optional): Defaults to None: those of the config.
        work_dir (str | Path, optional): Defaults to None: ``work_dirs/`` and the names of
            method and data.
        resume (bool): Continue the run in the work folder, if there is one. Defaults to False.
        **options: Fields of the config by dotted name, as in :func:`create_model`.

    Returns:
        TrainedModel: ``model``.
    """
    if model.config is None:
        raise ValueError(f'{model.name} has no config to train with: make a model with '
                         'create_model, or load the file with config=….')
    if not any(parameter.requires_grad for parameter in model.network.parameters()):
        raise ValueError(f'{model.name} has predicted, for which its weights were merged and '
                         'frozen: make a new model with create_model to train.')
    cfg = deepcopy(model.config)
    if epochs is not None:
        options = {'train_cfg.max_epochs': epochs, **options}
    merge_options(cfg, dict(options, data=dict(data.fields)))
    cfg.work_dir = str(work_dir or cfg.work_dir)
    start = find_resumable(cfg.work_dir) if resume else None
    cfg.resume, cfg.load_from = start is not None, str(start) if start else None
    cfg.setdefault('default_hooks', {}).setdefault('console', dict(type='mmcluspro.ConsoleHook'))
    with work_lock(cfg.work_dir):
        runner = build_runner(cfg, model.network)
        runner.train()
        best = runner.message_hub.runtime_info.get('best_ckpt') or find_resumable(cfg.work_dir)
        if best:
            model.facts = runner.load_checkpoint(str(best))['meta']
    model.config, model.chosen = cfg, find_hook(runner, EvaluationHook).chosen
    model.name = str(best or model.name)
    model.network.eval()
    return model


@torch.no_grad()
def test(model: TrainedModel, data: Data, world: str = 'closed',
         batch_size: int = 64) -> dict[str, float]:
    """Tests a model, as ``mmcluspro test`` does.

    Args:
        model (TrainedModel): Trained or loaded.
        data (Data): Whose test images are answered.
        world (str): 'closed' or 'open'; the open world takes the threshold that validation
            chose, or all pairs. Defaults to 'closed'.
        batch_size (int): Defaults to 64.

    Returns:
        dict[str, float]: 'seen', 'unseen', 'hm' and 'auc', in percent.
    """
    dataset, head = model.dataset('test', **data.fields), model.network.head
    stored = model.chosen.get('open', Chosen()).threshold
    metric = CZSLMetric(world, threshold='stored' if world == 'open' and stored else None)
    evaluation = Evaluation.of(head, dataset.space, [world], metric.wants_feasibility,
                               chosen=model.chosen)
    evaluator = Evaluator(metric)
    evaluator.dataset_meta = dict(dataset.metainfo, evaluation=evaluation)
    model.network.eval()
    model.forget_adaptation()
    for batch in DataLoader(dataset, batch_size, collate_fn=default_collate):
        evaluator.process(model.network.test_step(dict(batch, worlds=evaluation.worlds)), batch)
    numbers = evaluator.evaluate(len(dataset))
    return {name: numbers[f'{metric.prefix}/{name}'] for name in ('seen', 'unseen', 'hm', 'auc')}


test.__test__ = False  # type: ignore[attr-defined]  # no test case of pytest


def load(path: str | Path, device: str | torch.device | None = None,
         config: str | Path | Config | None = None, imports: Sequence[str] = (),
         weights: str | Path | Mapping[str, str | Path] | None = None,
         background: str | Sequence[int] | None = None) -> TrainedModel:
    """Loads a trained model from its file alone.

    Args:
        path (str | Path): File or address of a checkpoint that training wrote, which needs nothing
            else; a folder of ``model.save('folder/')``; ``'hf-hub:user/name'`` (``@revision``); or
            ``'cluspro_shapes'``, a small model of drawings that comes with the package.
        device (str | torch.device, optional): Defaults to None: a GPU if there is one.
        config (str | Path | Config, optional): Your own config, which is built instead of the
            description, for parts that the description cannot name. Defaults to None.
        imports (Sequence[str]): As in :meth:`TrainedModel.load`, like the other arguments.

    Examples:
        >>> model = load('cluspro_shapes', device='cpu')
        >>> len(model.classes)
        144
    """
    if config is not None and not isinstance(config, Config):
        config = read_config(config)
    return TrainedModel.load(path, device, config, imports, weights, background)


def predict(path: str | Path, inputs: Any, **options: Any) -> Predictions:
    """Loads a trained model and predicts the attribute and the object of images.

    For several calls, :func:`load` the model once.

    Args:
        path (str | Path): A file that training wrote.
        inputs: Images, as in :meth:`TrainedModel.stream`.
        **options: Arguments of :func:`load` (``device``, ``config``, ``imports``, ``weights``,
            ``background``) and of :meth:`TrainedModel.stream`.

    Examples:
        >>> predict('best_czsl_auc_epoch_16.pth', 'photos/', top_k=1)  # doctest: +SKIP
    """
    own = {name: options.pop(name) for name in ('device', 'config', 'imports', 'weights',
                                                'background') if name in options}
    return load(path, **own).predict(inputs, **options)
