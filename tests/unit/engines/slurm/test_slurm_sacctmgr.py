"""What sacctmgr, scontrol and sshare say, and what we make of it."""

from collections.abc import Sequence

import pytest

from heliostat.engines.slurm.accounts.sacctmgr import (
    Access,
    SlurmAccounts,
    carry_out,
    conduct_of,
    first_line,
    parse_sshare,
    read_accounts,
)
from heliostat.engines.slurm.accounts.steps import AddUser, Association, Limits, Qos
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.errors import Conflict, EngineUnavailable

CONFIG = """\
Configuration data as of 2026-11-16T05:02:31
AccountingStorageEnforce = associations,limits,qos
ClusterName             = bench
PreemptType             = preempt/none
PriorityDecayHalfLife   = 7-00:00:00
PriorityType            = priority/multifactor
PriorityUsageResetPeriod = NONE
PriorityWeightFairShare = 1000
"""
ACCOUNTS = "_imaging|heliostat:abc:department:imaging\nlab|odd | one|\nroot|default root account\n"
ASSOCIATIONS = """\
root||||1|||normal
root|root|||1|||normal
_imaging|||root|3|cpu=4,gres/gpu=8|gres/gpu=600|normal,urgent
lab|ann|||parent|||normal
lab|ann|night||1|gres/gpu=1||normal
"""
QOS = "normal|0||cluster|Normal QOS default\nurgent|900|scavenger|cluster|heliostat:abc:class:urgent\n"
SSHARE = """\
root||0.000000|600|cpu=10,gres/gpu=120
 root|root|0.250000|100|cpu=1,gres/gpu=0
 _imaging||0.750000|500|cpu=9,gres/gpu=120
  tumours||1.000000|500|cpu=9,gres/gpu=120
   tumours|ann|0.500000|400|cpu=8,gres/gpu=90
"""


class Answering:
    """A Slurm that gives these answers, by a word of the question."""

    def __init__(self, answers: dict[str, str | Exception]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def ask(self, argv: Sequence[str]) -> str:
        self.asked.append(list(argv))
        answer = next(answer for word, answer in self.answers.items() if word in argv)
        if isinstance(answer, Exception):
            raise answer
        return answer


def refused(said: str) -> SlurmRefused:
    error = SlurmRefused("refused")
    error.said = said
    return error


def all_answers() -> dict[str, str | Exception]:
    found: dict[str, str | Exception] = {"account": ACCOUNTS, "associations": ASSOCIATIONS, "qos": QOS}
    return found | {"user": "ann|lab\nnew|\n", "config": CONFIG, "sshare": SSHARE}


def test_accounts_are_read_whatever_their_descriptions_hold() -> None:
    found = read_accounts(Answering(all_answers()), "bench")
    assert found.descriptions["lab"] == "odd | one|"
    assert found.associations["_imaging", ""] == Association(
        "root", 3, Limits(8, 600), frozenset({"normal", "urgent"})
    )
    assert found.associations["lab", "ann"].share is None
    assert found.associations["lab", "ann"].limits == Limits()  # that of one partition is not looked at
    assert found.defaults == {"ann": "lab"}
    assert found.qos["urgent"] == Qos("heliostat:abc:class:urgent", 900, frozenset({"scavenger"}))


def test_a_slurm_without_accounting_says_so() -> None:
    with pytest.raises(Conflict, match="cannot be read: no slurmdbd here"):
        read_accounts(Answering({"account": refused("no slurmdbd here\n more")}), "bench")


def test_the_configuration_says_how_slurm_conducts_itself() -> None:
    conduct = conduct_of(CONFIG)
    assert conduct.cluster == "bench"
    assert conduct.enforces == {"associations", "limits", "qos"}
    assert (conduct.counts_by_month, conduct.weighs_shares, conduct.preempts_by_qos) == (False, True, False)
    monthly = CONFIG.replace("7-00:00:00", "00:00:00").replace("NONE", "MONTHLY").replace("FairShare = 1000", "X")
    assert (conduct_of(monthly).counts_by_month, conduct_of(monthly).weighs_shares) == (True, False)
    assert conduct_of("ClusterName = x\nAccountingStorageEnforce = safe").enforces >= {"limits", "associations"}


def test_an_answer_without_a_cluster_is_none() -> None:
    with pytest.raises(EngineUnavailable):
        conduct_of("garbage")


def test_a_step_that_is_done_already_is_done() -> None:
    step = AddUser("a", "ann", Limits())
    assert carry_out(Answering({"sacctmgr": ""}), step.argv("bench"))
    assert not carry_out(Answering({"sacctmgr": refused(" Nothing new added.")}), step.argv("bench"))  # not by us


def test_a_refusal_is_told_by_its_first_line() -> None:
    said = " Error with request: Job(s) active, cancel job(s) before remove\n  JobID = 1"
    with pytest.raises(SlurmRefused) as caught:
        carry_out(Answering({"sacctmgr": refused(said)}), AddUser("a", "ann", Limits()).argv("bench"))
    assert first_line(caught.value) == "Job(s) active, cancel job(s) before remove"


def test_usage_is_read_as_a_tree() -> None:
    root, _, imaging, tumours, ann = parse_sshare(SSHARE)
    assert (root.parent, imaging.parent, tumours.parent, ann.parent) == ("", "root", "_imaging", "tumours")
    assert (ann.user, ann.part, ann.raw, ann.gpu_hours) == ("ann", 0.5, 400.0, 1.5)
    assert list(parse_sshare("garbage\n\n")) == []


def access(enforce: str = "associations,limits,qos") -> Access:
    slurm = Answering(all_answers())
    return Access(conduct_of(CONFIG.replace("associations,limits,qos", enforce)), read_accounts(slurm, "bench"))


def test_a_job_gets_the_account_of_its_project_only_if_its_user_has_it() -> None:
    assert access().account_for("ann", "lab") == "lab"
    assert access().account_for("bert", "lab") is None


def test_a_class_is_refused_where_slurm_would_refuse_it() -> None:
    seen = access()
    assert seen.refused_qos("ann", "lab", "normal") is None
    assert "it has no QOS interactive" in (seen.refused_qos("ann", "lab", "interactive") or "")
    assert "does not let ann use the QOS urgent" in (seen.refused_qos("ann", "lab", "urgent") or "")
    assert "in the account lab" in (seen.refused_qos("ann", "elsewhere", "urgent") or "")
    assert seen.refused_qos("stranger", "lab", "urgent") is None
    assert access("associations").refused_qos("ann", "lab", "urgent") is None


def test_while_the_accounting_is_away_nothing_is_refused_and_the_last_picture_stays() -> None:
    slurm = Answering({"config": EngineUnavailable("away")})
    accounts = SlurmAccounts(slurm)
    accounts.look_if_old()
    assert accounts.account_for("ann", "lab") is None
    assert accounts.refused_qos("ann", "lab", "urgent") is None
    slurm.answers = all_answers()
    accounts.look_again()
    assert accounts.account_for("ann", "lab") == "lab"
    slurm.answers = {"config": EngineUnavailable("away")}
    accounts.look_again()
    assert accounts.account_for("ann", "lab") == "lab"


def test_usage_is_asked_for_once_in_a_while() -> None:
    slurm = Answering(all_answers())
    accounts = SlurmAccounts(slurm)
    assert len(accounts.used()) == 5
    assert len(accounts.used()) == 5
    assert len(slurm.asked) == 1


def test_usage_of_a_slurm_that_is_away_is_nothing_rather_than_an_error() -> None:
    assert SlurmAccounts(Answering({"sshare": EngineUnavailable("away")})).used() == ()
