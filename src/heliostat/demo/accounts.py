"""Synthetic users, projects and departments of the demo: a hospital."""

from dataclasses import dataclass

from heliostat.models import Department, Quota


@dataclass(frozen=True, slots=True)
class DemoProject:
    name: str
    department: str
    models: tuple[str, ...]  # names of training scripts: train_<model>.py
    datasets: tuple[str, ...]
    share: int = 1  # within its department


@dataclass(frozen=True, slots=True)
class DemoUser:
    name: str
    full_name: str
    projects: tuple[str, ...]  # main project first
    activity: float = 1.0  # relative number of submissions
    submits_arrays: bool = False
    is_admin: bool = False
    managed_projects: tuple[str, ...] = ()


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

USERS = (
    DemoUser(
        "mlindqvist", "Maja Lindqvist", ("chest-ct",), 2.0, submits_arrays=True, managed_projects=("chest-ct",)
    ),
    DemoUser("rokafor", "Ruth Okafor", ("chest-ct", "mammography"), 1.2),
    DemoUser("tvandijk", "Tim van Dijk", ("chest-ct",), 0.6),
    DemoUser("hsato", "Hana Sato", ("knee-mri",), 2.6, submits_arrays=True, managed_projects=("knee-mri",)),
    DemoUser("pnovak", "Petr Novák", ("knee-mri", "synthetic-ct"), 1.0),
    DemoUser("cferrari", "Chiara Ferrari", ("mammography",), 1.4, managed_projects=("mammography",)),
    DemoUser("jmuller", "Jonas Müller", ("mammography",), 0.5),
    DemoUser("abakker", "Anouk Bakker", ("chest-ct", "knee-mri"), 0.3, is_admin=True),
    DemoUser(
        "snair", "Sanjay Nair", ("slide-model",), 3.2, submits_arrays=True, managed_projects=("slide-model",)
    ),
    DemoUser("eholm", "Elin Holm", ("slide-model",), 1.7),
    DemoUser("ychen", "Yifan Chen", ("slide-model", "mitosis"), 1.9),
    DemoUser("dpetrov", "Dimitar Petrov", ("mitosis",), 1.1, submits_arrays=True, managed_projects=("mitosis",)),
    DemoUser("lgarcia", "Lucía García", ("mitosis",), 0.7),
    DemoUser("kjansen", "Koen Jansen", ("mitosis", "survival"), 0.4),
    DemoUser("fhaddad", "Farah Haddad", ("echo",), 1.5, submits_arrays=True, managed_projects=("echo",)),
    DemoUser("oberg", "Oskar Berg", ("echo",), 0.8),
    DemoUser("nwilliams", "Nadia Williams", ("echo", "ecg"), 0.9),
    DemoUser("gkaya", "Gül Kaya", ("ecg",), 2.2, submits_arrays=True, managed_projects=("ecg",)),
    DemoUser("bdubois", "Baptiste Dubois", ("ecg",), 0.6),
    DemoUser("mrossi", "Marco Rossi", ("ecg",), 0.4),
    DemoUser("avisser", "Annelies Visser", ("radiotherapy",), 1.6, managed_projects=("radiotherapy",)),
    DemoUser("tnguyen", "Thảo Nguyễn", ("radiotherapy", "synthetic-ct"), 1.3, submits_arrays=True),
    DemoUser("wdeboer", "Wouter de Boer", ("radiotherapy",), 0.5),
    DemoUser("imensah", "Isaac Mensah", ("survival",), 1.2, submits_arrays=True, managed_projects=("survival",)),
    DemoUser("kschmidt", "Klara Schmidt", ("survival",), 0.6),
    DemoUser("rpatel", "Riya Patel", ("survival", "radiotherapy"), 0.8),
    DemoUser("lhansen", "Lars Hansen", ("brain-age",), 2.1, submits_arrays=True, managed_projects=("brain-age",)),
    DemoUser("zali", "Zainab Ali", ("brain-age",), 1.0),
    DemoUser("vsmit", "Vera Smit", ("brain-age", "stroke"), 0.7),
    DemoUser("jmoreau", "Julie Moreau", ("stroke",), 1.4, managed_projects=("stroke",)),
    DemoUser("dkim", "Daeho Kim", ("stroke",), 1.1, submits_arrays=True),
    DemoUser("fsilva", "Filipa Silva", ("stroke",), 0.4),
    DemoUser(
        "amoran", "Aoife Moran", ("fmri-decoding",), 1.8, submits_arrays=True, managed_projects=("fmri-decoding",)
    ),
    DemoUser("gtadesse", "Getachew Tadesse", ("fmri-decoding",), 0.9),
    DemoUser("scohen", "Shira Cohen", ("fmri-decoding", "brain-age"), 0.6),
    DemoUser(
        "nkowalska",
        "Nina Kowalska",
        ("synthetic-ct",),
        2.4,
        submits_arrays=True,
        managed_projects=("synthetic-ct",),
    ),
    DemoUser("hlarsen", "Henrik Larsen", ("synthetic-ct",), 0.8),
    DemoUser("crojas", "Camila Rojas", ("surgical-video",), 1.5, managed_projects=("surgical-video",)),
    DemoUser("mwang", "Ming Wang", ("surgical-video",), 1.2, submits_arrays=True),
    DemoUser("bpeeters", "Bram Peeters", ("surgical-video", "echo"), 0.3, is_admin=True),
)
