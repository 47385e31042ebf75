"""Every subcommand of ``mmcluspro``: a new one is a line here and a module with ``main(argv)``."""
from typing import NamedTuple


class Command(NamedTuple):
    """One subcommand.

    Attributes:
        module (str): Its ``main(argv)`` runs it and returns an exit code or None.
        text (str): What it does, for ``mmcluspro --help``.
        extra (str | None): Extra of the package that the module cannot be imported without.
    """
    module: str
    text: str
    extra: str | None = None


GROUPS: dict[str, dict[str, Command]] = {
    'train and predict': {
        'train': Command('mmcluspro.cli.train', 'train on your photos, or by a config'),
        'test': Command('mmcluspro.cli.test',
                        'test a checkpoint: seen, unseen, harmonic mean, AUC'),
        'predict': Command('mmcluspro.cli.predict', 'name attribute and object of your images'),
        'demo': Command('mmcluspro.demo.demo_command', 'start the web page', 'demo'),
        'export': Command('mmcluspro.export.export_command', 'write ONNX files', 'export'),
        'publish': Command('mmcluspro.export.publish_command',
                           'write a small checkpoint to hand out'),
    },
    'data': {
        'check-data': Command('mmcluspro.cli.check_data',
                              'count a dataset and list what is wrong with it'),
        'make-split': Command('mmcluspro.cli.make_split',
                              'split your own images into seen and unseen pairs'),
        'review': Command('mmcluspro.cli.review',
                          'predictions out for people, corrections in to train with'),
        'extract-features': Command('mmcluspro.cli.extract_features',
                                    'store the features of a frozen backbone'),
    },
    'pictures': {
        'report': Command('mmcluspro.visualization.commands.make_report',
                          'one HTML file: numbers, curves, mistakes, prototypes'),
        'curves': Command('mmcluspro.visualization.commands.draw_curves',
                          'seen-unseen curves of several runs'),
        'cases': Command('mmcluspro.visualization.commands.draw_cases',
                         "one model's mistakes, or one model against another"),
        'confusion': Command('mmcluspro.visualization.commands.draw_confusions',
                             'which attributes, objects and pairs are taken for which'),
        'accuracy': Command('mmcluspro.visualization.commands.draw_accuracy',
                            'accuracy of each attribute and object'),
        'prototypes': Command('mmcluspro.visualization.commands.draw_prototypes',
                              'the images nearest to each prototype'),
        'tsne': Command('mmcluspro.visualization.commands.draw_tsne',
                        't-SNE of attribute and object features'),
    },
}
COMMANDS: dict[str, Command] = {
    name: command for group in GROUPS.values() for name, command in group.items()}
