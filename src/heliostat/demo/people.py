"""The people of a made-up hospital: departments, their projects, and who works on what."""

from dataclasses import dataclass

from heliostat.models import Department, Quota


@dataclass(frozen=True, slots=True)
class DemoProject:
    name: str
    department: str
    models: tuple[str, ...]  # what is trained: train_<model>.py
    datasets: tuple[str, ...]
    share: int = 1  # of its department


@dataclass(frozen=True, slots=True)
class DemoPerson:
    """`activity` is how much they submit beside others."""

    user: str
    full_name: str
    projects: tuple[str, ...]  # the first is the one they mostly work on
    activity: float = 1.0
    sweeps: bool = False  # submits whole arrays of runs at once
    is_admin: bool = False
    manages: tuple[str, ...] = ()


PROJECTS = (
    DemoProject("chest-ct", "radiology", ("unet", "nnunet"), ("lidc", "chest-ct-v3"), share=2),
    DemoProject("knee-mri", "radiology", ("unet3d", "varnet"), ("fastmri-knee", "oai-mri")),
    DemoProject("mammography", "radiology", ("retinanet", "efficientnet"), ("mammo-2023", "vindr-mammo")),
    DemoProject("slide-model", "pathology", ("dinov2", "vit"), ("slides-20x", "tcga-tiles"), share=3),
    DemoProject("mitosis", "pathology", ("hovernet", "yolo"), ("midog", "mitosis-he")),
    DemoProject("echo", "cardiology", ("r2plus1d", "segformer"), ("echonet", "echo-4ch")),
    DemoProject("ecg", "cardiology", ("resnet1d", "transformer"), ("ptb-xl", "ecg-holter")),
    DemoProject("radiotherapy", "oncology", ("dose_unet", "swin_unetr"), ("head-neck-rt", "prostate-rt")),
    DemoProject("survival", "oncology", ("deepsurv", "multimodal"), ("tcga-clinical", "lung-cohort")),
    DemoProject("brain-age", "neuroscience", ("sfcn", "densenet3d"), ("ukb-t1", "ixi")),
    DemoProject("stroke", "neuroscience", ("nnunet", "swin_unetr"), ("isles-22", "ct-perfusion")),
    DemoProject("fmri-decoding", "neuroscience", ("fmri_mae", "gnn"), ("hcp-rest", "nsd")),
    DemoProject("synthetic-ct", "bioengineering", ("ddpm", "cyclegan"), ("mr-ct-pairs", "synthrad")),
    DemoProject("surgical-video", "bioengineering", ("timesformer", "yolo"), ("cholec80", "endoscapes")),
)

DEPARTMENTS = (
    Department("radiology", share=4, quota=Quota(running_gpus=64)),
    Department("pathology", share=2),
    Department("cardiology", share=2),
    Department("oncology", share=1),
    Department("neuroscience", share=3),
    Department("bioengineering", share=1, quota=Quota(gpu_hours_per_month=20_000)),
)

PEOPLE = (
    DemoPerson("mlindqvist", "Maja Lindqvist", ("chest-ct",), 2.0, sweeps=True, manages=("chest-ct",)),
    DemoPerson("rokafor", "Ruth Okafor", ("chest-ct", "mammography"), 1.2),
    DemoPerson("tvandijk", "Tim van Dijk", ("chest-ct",), 0.6),
    DemoPerson("hsato", "Hana Sato", ("knee-mri",), 2.6, sweeps=True, manages=("knee-mri",)),
    DemoPerson("pnovak", "Petr Novák", ("knee-mri", "synthetic-ct"), 1.0),
    DemoPerson("cferrari", "Chiara Ferrari", ("mammography",), 1.4, manages=("mammography",)),
    DemoPerson("jmuller", "Jonas Müller", ("mammography",), 0.5),
    DemoPerson("abakker", "Anouk Bakker", ("chest-ct", "knee-mri"), 0.3, is_admin=True),
    DemoPerson("snair", "Sanjay Nair", ("slide-model",), 3.2, sweeps=True, manages=("slide-model",)),
    DemoPerson("eholm", "Elin Holm", ("slide-model",), 1.7),
    DemoPerson("ychen", "Yifan Chen", ("slide-model", "mitosis"), 1.9),
    DemoPerson("dpetrov", "Dimitar Petrov", ("mitosis",), 1.1, sweeps=True, manages=("mitosis",)),
    DemoPerson("lgarcia", "Lucía García", ("mitosis",), 0.7),
    DemoPerson("kjansen", "Koen Jansen", ("mitosis", "survival"), 0.4),
    DemoPerson("fhaddad", "Farah Haddad", ("echo",), 1.5, sweeps=True, manages=("echo",)),
    DemoPerson("oberg", "Oskar Berg", ("echo",), 0.8),
    DemoPerson("nwilliams", "Nadia Williams", ("echo", "ecg"), 0.9),
    DemoPerson("gkaya", "Gül Kaya", ("ecg",), 2.2, sweeps=True, manages=("ecg",)),
    DemoPerson("bdubois", "Baptiste Dubois", ("ecg",), 0.6),
    DemoPerson("mrossi", "Marco Rossi", ("ecg",), 0.4),
    DemoPerson("avisser", "Annelies Visser", ("radiotherapy",), 1.6, manages=("radiotherapy",)),
    DemoPerson("tnguyen", "Thảo Nguyễn", ("radiotherapy", "synthetic-ct"), 1.3, sweeps=True),
    DemoPerson("wdeboer", "Wouter de Boer", ("radiotherapy",), 0.5),
    DemoPerson("imensah", "Isaac Mensah", ("survival",), 1.2, sweeps=True, manages=("survival",)),
    DemoPerson("kschmidt", "Klara Schmidt", ("survival",), 0.6),
    DemoPerson("rpatel", "Riya Patel", ("survival", "radiotherapy"), 0.8),
    DemoPerson("lhansen", "Lars Hansen", ("brain-age",), 2.1, sweeps=True, manages=("brain-age",)),
    DemoPerson("zali", "Zainab Ali", ("brain-age",), 1.0),
    DemoPerson("vsmit", "Vera Smit", ("brain-age", "stroke"), 0.7),
    DemoPerson("jmoreau", "Julie Moreau", ("stroke",), 1.4, manages=("stroke",)),
    DemoPerson("dkim", "Daeho Kim", ("stroke",), 1.1, sweeps=True),
    DemoPerson("fsilva", "Filipa Silva", ("stroke",), 0.4),
    DemoPerson("amoran", "Aoife Moran", ("fmri-decoding",), 1.8, sweeps=True, manages=("fmri-decoding",)),
    DemoPerson("gtadesse", "Getachew Tadesse", ("fmri-decoding",), 0.9),
    DemoPerson("scohen", "Shira Cohen", ("fmri-decoding", "brain-age"), 0.6),
    DemoPerson("nkowalska", "Nina Kowalska", ("synthetic-ct",), 2.4, sweeps=True, manages=("synthetic-ct",)),
    DemoPerson("hlarsen", "Henrik Larsen", ("synthetic-ct",), 0.8),
    DemoPerson("crojas", "Camila Rojas", ("surgical-video",), 1.5, manages=("surgical-video",)),
    DemoPerson("mwang", "Ming Wang", ("surgical-video",), 1.2, sweeps=True),
    DemoPerson("bpeeters", "Bram Peeters", ("surgical-video", "echo"), 0.3, is_admin=True),
)
