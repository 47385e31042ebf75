"""Every subcommand of ``mmcluspro``.

A new one is an entry here, a function in :mod:`mmcluspro.flags` that parses its words, and a module
with ``main(argv)``.
"""
from typing import NamedTuple


class Command(NamedTuple):
    """One subcommand.

    Attributes:
        module (str): Its ``main(argv)`` runs it and returns an exit code or None.
        text (str): What it does, for ``mmcluspro --help``.
        flags (str): Module and function that parse its words without importing torch.
        extra (str | None): Extra of the package that the module cannot be imported without.
    """
    module: str
    text: str
    flags: str
    extra: str | None = None


GROUPS: dict[str, dict[str, Command]] = {
    'train and predict': {
        'train': Command('mmcluspro.cli.train', 'train on your own images, or by a config',
                         'mmcluspro.flags.train_flags:parse_train'),
        'test': Command('mmcluspro.cli.test', 'test a checkpoint: seen, unseen, harmonic mean, AUC',
                        'mmcluspro.flags.train_flags:parse_test'),
        'predict': Command('mmcluspro.cli.predict', 'predict attribute and object of images',
                           'mmcluspro.flags.predict_flags:parse_predict'),
        'demo': Command('mmcluspro.demo.demo_command', 'try a model in the browser',
                        'mmcluspro.flags.predict_flags:parse_demo', 'demo'),
        'export': Command('mmcluspro.export.export_command', 'write ONNX files',
                          'mmcluspro.flags.predict_flags:parse_export', 'export'),
        'publish': Command('mmcluspro.export.publish', 'write a small checkpoint to share',
                           'mmcluspro.flags.predict_flags:parse_publish'),
    },
    'data': {
        'check-data': Command('mmcluspro.cli.check_data',
                              'count a dataset and list what is wrong with it',
                              'mmcluspro.flags.data_flags:parse_check_data'),
        'make-split': Command('mmcluspro.cli.make_split',
                              'split your own images into seen and unseen pairs',
                              'mmcluspro.flags.data_flags:parse_make_split'),
        'review': Command('mmcluspro.cli.review',
                          'correct predictions by hand, and train with the corrections',
                          'mmcluspro.flags.data_flags:parse_review'),
        'extract-features': Command('mmcluspro.cli.extract_features',
                                    'store the features of a frozen backbone',
                                    'mmcluspro.flags.data_flags:parse_extract_features'),
    },
    'pictures': {
        name: Command(f'mmcluspro.visualization.{module}', text,
                      f'mmcluspro.flags.picture_flags:parse_{name}')
        for name, module, text in (
            ('report', 'make_report', 'one HTML file: numbers, curves, mistakes, prototypes'),
            ('curves', 'curve_plot', 'seen-unseen curves of several runs'),
            ('cases', 'cases', "one model's mistakes, or one model against another"),
            ('confusion', 'confusion',
             'which attributes, objects and pairs are confused with which'),
            ('accuracy', 'accuracy', 'accuracy of each attribute and object'),
            ('prototypes', 'prototype_plot', 'the images nearest to each prototype'),
            ('tsne', 'tsne', 't-SNE of attribute and object features'),
        )
    },
}
COMMANDS: dict[str, Command] = {
    name: command for group in GROUPS.values() for name, command in group.items()}
