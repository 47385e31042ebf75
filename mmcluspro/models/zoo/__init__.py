"""Methods of other papers, one file each; configs name their classes ``mmcluspro.X``.

Importing this package imports every file of its folder, which registers the classes.
"""
from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f'{__name__}.{_module.name}')
