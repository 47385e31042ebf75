"""ClusPro with one thing changed, as in the paper's tables; they are methods of their own."""
_base_ = '../cluspro_{dataset}.py'
datasets = ('utzappos', )
variants = dict(
    # Table 3, "Prototype-based Contrast": without decorrelation.
    pcl_only=dict(datasets=('utzappos', 'cgqa'), model=dict(head=dict(loss_pdl=None))),
    # Table 3, "Prototype-based Decorrelation": without contrast.
    pdl_only=dict(datasets=('utzappos', 'cgqa'), model=dict(head=dict(loss_pcl=None))),
    # Table 4c: only attributes, only objects are clustered.
    attr_branch=dict(model=dict(head=dict(branches=('attr', )))),
    obj_branch=dict(model=dict(head=dict(branches=('obj', )))),
    # Table 4d, "Cosine Similarity": the nearest prototype, without transport.
    cosine=dict(model=dict(head=dict(bank=dict(
        assigner=dict(_delete_=True, type='mmcluspro.CosineAssigner'))))),
    # Table 4d, "Classical OT": transport without the structure term (κ=0).
    classical_ot=dict(model=dict(head=dict(bank=dict(assigner=dict(kappa=0.0))))),
    # Table 11: K from 1 to 5 by the primitive's share of the training images.
    variable_k=dict(model=dict(head=dict(bank=dict(num_prototypes='share')))))
