"""Table 3, "Prototype-based Contrast": ClusPro without decorrelation."""
_base_ = '../cluspro_cgqa.py'
model = dict(head=dict(loss_pdl=None))
