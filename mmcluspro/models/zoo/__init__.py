"""The methods that the paper compares with (Tables 1, 2 and 7 to 9) and newer ones."""
from .ade import ADEHead
from .aop import AoPHead, AoPText
from .caila import CAILAHead, CAILAText, CAILAVision
from .canet import CANetHead, CANetNeck
from .cape import CAPEText
from .cds_czsl import CDSHead
from .cge import CGEHead
from .co_cge import CoCGEHead
from .compcos import CompCosHead, LinearPairText
from .cpf import CPFHead
from .cvgae import CVGAEHead, VariationalGraphText
from .dfsp import DFSPHead
from .gipcol import GIPCOLHead, GraphPrompt
from .graph_text import GraphText
from .kg_sp import KGSPHead
from .le_plus import LEPlusHead, LEPlusText
from .msci import MSCIHead, MultiStageTraction
from .oadis import OADisHead, OADisNeck
from .pcvl import PCVLHead
from .plid import PLIDHead, PLIDText
from .scen import SCENHead, SCENNeck
from .symnet import SymNetHead
from .tmn import TMNHead
from .tomcat import TOMCATHead

__all__ = ['ADEHead', 'AoPHead', 'AoPText', 'CAILAHead', 'CAILAText', 'CAILAVision', 'CANetHead',
           'CANetNeck', 'CAPEText', 'CDSHead', 'CGEHead', 'CPFHead', 'CVGAEHead', 'CoCGEHead',
           'CompCosHead', 'DFSPHead', 'GIPCOLHead', 'GraphPrompt', 'GraphText', 'KGSPHead',
           'LEPlusHead', 'LEPlusText', 'LinearPairText', 'MSCIHead', 'MultiStageTraction',
           'OADisHead', 'OADisNeck', 'PCVLHead', 'PLIDHead', 'PLIDText', 'SCENHead', 'SCENNeck',
           'SymNetHead', 'TMNHead', 'TOMCATHead', 'VariationalGraphText']
