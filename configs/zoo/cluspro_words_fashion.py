"""ClusPro of Table 9 on Fashion under the name that Tables 7 and 8 ask for."""
_base_ = '../frozen_dinov2_cluspro_fashion.py'
