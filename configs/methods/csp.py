"""CSP: attribute and object vectors learn, the context stays; composition path only.

Its README gives the command for MIT-States for C-GQA, too; rate and dropout on UT-Zappos are those
of the command there (mixed vocabulary).
"""
_base_ = '_one_path.py'
model = dict(head=dict(text=dict(prompt=dict(learn=('vocabulary', )))))
on = dict(
    utzappos=dict(
        model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.2)))),
        optim_wrapper=dict(optimizer=dict(lr=5e-4))),
    shapes=dict(model=dict(head=dict(text=dict(prompt=dict(attr_dropout=0.0))))))
