"""Table 3, "Prototype-based Decorrelation": ClusPro without contrast."""
_base_ = '../cluspro_cgqa.py'
model = dict(head=dict(loss_pcl=None))
