"""t-SNE of attribute and object features, prototypes marked (Fig. 4): ``mmcluspro tsne``."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import CSS4_COLORS, XKCD_COLORS, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mmcluspro.artefact import TrainedModel
from mmcluspro.cli.pictures import parse_tsne as parse_args
from mmcluspro.requirements import extra_command

from .options import (
    most_frequent,
    names_of,
    open_checkpoints,
    run_names,
    save_and_say,
    split_by_branch,
)
from .phase import evenly, run_phase
from .style import MUTED, SMALL, WIDTH, new_figure, print_style

# Names of shops that xkcd's survey of colour names lacks, or has as something else.
MORE = {'multi': '#8c8c8c', 'nude': '#e3bc9a', 'skin': '#e8b998', 'coffee brown': '#6f4e37',
        'metallic': '#9aa0a6', 'steel': '#8d99a3', 'fluorescent green': '#08ff08',
        'off white': '#f2efe2', 'blond': '#e6c97a', 'blonde': '#e6c97a',
        'grey melange': '#a9a9a9'}


def named_color(name: str) -> str | None:
    """The colour that a name means, as '#rrggbb'; None for other words.

    Args:
        name (str): In any case, with spaces, hyphens or underscores.
    """
    words = ' '.join(name.lower().replace('_', ' ').replace('-', ' ').split())
    found = MORE.get(words) or XKCD_COLORS.get(f'xkcd:{words}') or CSS4_COLORS.get(
        words.replace(' ', ''))
    return None if found is None else to_hex(found)


def class_colors(names: Sequence[str]) -> list[str]:
    """A colour for each class: the named one if at least half of the names are colours.

    Args:
        names (Sequence[str]): Classes of a legend.

    Returns:
        list[str]: '#rrggbb' each; other words get colours of a palette for colour-blind readers.
    """
    own = [named_color(name) for name in names]
    if 2 * sum(color is not None for color in own) < len(names):
        own = [None] * len(names)
    rest = iter(MUTED * (len(names) // len(MUTED) + 1))
    return [next(rest) if color is None else color for color in own]


def edge_of(color: str) -> str:
    """A line around a mark, so that white and yellow show on white paper; none elsewhere."""
    red, green, blue = to_rgb(color)
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    return '#555555' if light > 0.7 else color


MARKERS = ('o', 's', '^', 'D')


@dataclass
class Cloud:
    """Features of one branch of one model.

    Args:
        features (np.ndarray): Unit norm, shape (N, D).
        labels (np.ndarray): Class of each, in the order of the legend, shape (N,).
        prototypes (np.ndarray): Unit norm, shape (P, D). Defaults to none.
        prototype_labels (np.ndarray): Class of each, shape (P,).
    """
    features: np.ndarray
    labels: np.ndarray
    prototypes: np.ndarray | None = None
    prototype_labels: np.ndarray = field(default_factory=lambda: np.empty(0, int))


def require_sklearn() -> None:
    """Raises an ImportError that names the extra."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ImportError(f't-SNE needs scikit-learn: {extra_command("viz")}') from None


def embed(features: np.ndarray, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """Two-dimensional t-SNE; the same numbers for the same seed.

    Args:
        features (np.ndarray): Unit norm, so that distances follow the cosine, shape (N, D).
        perplexity (float): Neighbours that count; made smaller for few features. Defaults to 30.
        seed (int): Defaults to 0.

    Returns:
        np.ndarray: Shape (N, 2).
    """
    require_sklearn()
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits
    if len(features) < 4:
        raise ValueError(f't-SNE needs at least 4 features, got {len(features)}.')
    if not np.isfinite(features).all():
        raise ValueError('t-SNE needs finite features, got NaN or infinity: did training diverge?')
    perplexity = min(perplexity, (len(features) - 1) / 3)
    # Sums of several threads come in any order: one thread gives the same picture every time.
    with threadpool_limits(1):
        return TSNE(perplexity=perplexity, init='pca', learning_rate='auto',
                    random_state=seed).fit_transform(np.asarray(features, np.float32))


def separation(features: np.ndarray, labels: np.ndarray) -> float:
    """Silhouette by cosine, in [-1, 1]: how well the classes part in the feature space itself.

    Args:
        features (np.ndarray): Shape (N, D).
        labels (np.ndarray): Shape (N,); NaN is returned for a single class.
    """
    if not 1 < len(np.unique(labels)) < len(labels):
        return float('nan')
    from sklearn.metrics import silhouette_score
    return float(silhouette_score(features, labels, metric='cosine'))


def draw_tsne(clouds: Sequence[Sequence[Cloud]], rows: Sequence[str], columns: Sequence[str],
              names: Sequence[Sequence[str]], perplexity: float = 30.0, seed: int = 0,
              say: Callable[[str], None] | None = None) -> Figure:
    """A grid of clouds: a row a branch, a column a model.

    Args:
        clouds (Sequence[Sequence[Cloud]]): By row and column.
        rows (Sequence[str]): For example 'Attributes' and 'Objects'.
        columns (Sequence[str]): Names of the models.
        names (Sequence[Sequence[str]]): Classes of each row, for the legend. Names of colours
            are drawn in their colour.
        perplexity (float): As in :func:`embed`. Defaults to 30.
        seed (int): Defaults to 0.
        say (Callable, optional): Gets a line before each cloud, which takes seconds. Defaults
            to None.
    """
    with print_style():
        figure = new_figure(WIDTH, 2.45 * len(rows) + 0.1, constrained=True)
        grid = figure.subplots(len(rows), len(columns), squeeze=False)
        for line, row, part, classes in zip(grid, rows, clouds, names):
            colors = class_colors(classes)
            for axes, column, cloud in zip(line, columns, part):
                if say is not None:
                    say(f'{row} of {column}: embedding {len(cloud.features)} images')
                score = separation(cloud.features, cloud.labels)
                axes.set_title(column if np.isnan(score) else f'{column} (silhouette {score:.2f})')
                _draw_cloud(axes, cloud, colors, perplexity, seed)
            line[0].set_ylabel(row)
            handles = [Line2D([], [], linestyle='', marker=_marker(i), color=color, label=name,
                              markersize=4, markeredgecolor=edge_of(color), markeredgewidth=0.5)
                       for i, (name, color) in enumerate(zip(classes, colors))]
            if any(cloud.prototypes is not None for cloud in part):
                handles.append(Line2D([], [], linestyle='', marker='*', color='white',
                                      markeredgecolor='black', markersize=8, label='prototype'))
            line[-1].legend(handles=handles, loc='center left', bbox_to_anchor=(1.01, 0.5),
                            frameon=False, fontsize=SMALL, handletextpad=0.2, borderpad=0)
    return figure


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def _draw_cloud(axes: Axes, cloud: Cloud, colors: Sequence[str], perplexity: float,
                seed: int) -> None:
    """Images and prototypes are embedded together, so that their places compare."""
    own = len(cloud.features)
    every = cloud.features if cloud.prototypes is None else np.concatenate(
        [cloud.features, cloud.prototypes])
    places = embed(every, perplexity, seed)
    for number in np.unique(cloud.labels):
        mine = places[:own][cloud.labels == number]
        axes.scatter(mine[:, 0], mine[:, 1], s=7, marker=_marker(number), color=colors[number],
                     alpha=0.75, edgecolors=edge_of(colors[number]), linewidths=0.3,
                     rasterized=own > 5000)
    for number in np.unique(cloud.prototype_labels):
        mine = places[own:][cloud.prototype_labels == number]
        axes.scatter(mine[:, 0], mine[:, 1], s=75, marker='*', color=colors[number],
                     edgecolors='black', linewidths=0.7, zorder=3)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)


TITLES = {'attr': 'Attributes', 'obj': 'Objects'}


def make_cloud(model: TrainedModel, branch: str, features: torch.Tensor, labels: torch.Tensor,
               classes: list[int]) -> Cloud:
    """Features and prototypes of the chosen classes."""
    place = {index: number for number, index in enumerate(classes)}
    rows = torch.isin(labels, torch.tensor(classes))
    cloud = Cloud(features[rows].numpy(), np.array([place[i] for i in labels[rows].tolist()]))
    bank = model.network.head.clustered.get(branch)
    if bank is not None:
        owner = torch.arange(bank.num_classes).repeat_interleave(bank.sizes.cpu())
        mine = torch.isin(owner, torch.tensor(classes))
        cloud.prototypes = bank.prototypes.cpu()[mine].numpy()
        cloud.prototype_labels = np.array([place[i] for i in owner[mine].tolist()])
    return cloud


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    require_sklearn()
    names = run_names(args.checkpoints, args.names)
    models, dataset = open_checkpoints(args.checkpoints, args)
    chosen = split_by_branch(dataset.space, args.primitives or [])
    indices = evenly(len(dataset), args.max_images)
    collected = []
    for name, model in zip(names, models):
        batches = list(run_phase(model, dataset, indices, batch_size=args.batch_size,
                                 progress=f'{name}: features of {len(indices)} images'))
        if not batches[0].features:
            raise ValueError(f'{name} has no attribute and object features: it has one path only.')
        collected.append(batches)
    clouds, rows, classes_of_rows = [], [], []
    for branch, title in TITLES.items():
        labels = torch.cat([batch.labels[branch] for batch in collected[0]])
        known = names_of(dataset.space, branch)
        classes = chosen[branch]
        if args.primitives is None:
            classes = most_frequent(labels, len(known), args.most)
        if not classes:
            continue
        clouds.append([make_cloud(model, branch, torch.cat(
            [batch.features[branch] for batch in batches]), labels, classes)
            for model, batches in zip(models, collected)])
        rows.append(title)
        classes_of_rows.append([known[index] for index in classes])
    figure = draw_tsne(clouds, rows, names, classes_of_rows, args.perplexity, args.seed, print)
    save_and_say(figure, args.out)
