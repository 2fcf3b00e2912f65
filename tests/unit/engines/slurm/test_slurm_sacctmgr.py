"""What sacctmgr, scontrol and sshare say, and what we make of it."""

from collections.abc import Sequence

import pytest

from heliostat.engines.slurm.accounts.sacctmgr import (
    AccountAccess,
    SlurmAccounts,
    first_error_line,
    parse_accounting_config,
    parse_sshare_usage,
    read_accounting,
    run_sacctmgr,
)
from heliostat.engines.slurm.accounts.steps import AccountLimits, AddUser, Association, Qos
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

    def run_command(self, argv: Sequence[str]) -> str:
        self.asked.append(list(argv))
        answer = next(answer for word, answer in self.answers.items() if word in argv)
        if isinstance(answer, Exception):
            raise answer
        return answer


def refused(said: str) -> SlurmRefused:
    error = SlurmRefused("refused")
    error.output = said
    return error


def all_answers() -> dict[str, str | Exception]:
    found: dict[str, str | Exception] = {"account": ACCOUNTS, "associations": ASSOCIATIONS, "qos": QOS}
    return found | {"user": "ann|lab\nnew|\n", "config": CONFIG, "sshare": SSHARE}


def test_accounts_are_read_whatever_their_descriptions_hold() -> None:
    found = read_accounting(Answering(all_answers()), "bench")
    assert found.descriptions["lab"] == "odd | one|"
    assert found.associations["_imaging", ""] == Association(
        "root", 3, AccountLimits(8, 600), frozenset({"normal", "urgent"})
    )
    assert found.associations["lab", "ann"].share is None
    assert found.associations["lab", "ann"].limits == AccountLimits()  # that of one partition is not looked at
    assert found.default_accounts == {"ann": "lab"}
    assert found.qos["urgent"] == Qos("heliostat:abc:class:urgent", 900, frozenset({"scavenger"}))


def test_a_slurm_without_accounting_says_so() -> None:
    with pytest.raises(Conflict, match="Cannot read Slurm's accounting: no slurmdbd here"):
        read_accounting(Answering({"account": refused("no slurmdbd here\n more")}), "bench")


def test_the_configuration_says_how_slurm_conducts_itself() -> None:
    conduct = parse_accounting_config(CONFIG)
    assert conduct.cluster == "bench"
    assert conduct.enforced == {"associations", "limits", "qos"}
    assert (conduct.resets_usage_monthly, conduct.uses_fair_share, conduct.preempts_by_qos) == (False, True, False)
    monthly = CONFIG.replace("7-00:00:00", "00:00:00").replace("NONE", "MONTHLY").replace("FairShare = 1000", "X")
    assert (
        parse_accounting_config(monthly).resets_usage_monthly,
        parse_accounting_config(monthly).uses_fair_share,
    ) == (True, False)
    assert parse_accounting_config("ClusterName = x\nAccountingStorageEnforce = safe").enforced >= {
        "limits",
        "associations",
    }


def test_an_answer_without_a_cluster_is_none() -> None:
    with pytest.raises(EngineUnavailable):
        parse_accounting_config("garbage")


def test_a_step_that_is_done_already_is_done() -> None:
    step = AddUser("a", "ann", AccountLimits())
    assert run_sacctmgr(Answering({"sacctmgr": ""}), step.argv("bench"))
    assert not run_sacctmgr(
        Answering({"sacctmgr": refused(" Nothing new added.")}), step.argv("bench")
    )  # not by us


def test_a_refusal_is_told_by_its_first_line() -> None:
    said = " Error with request: Job(s) active, cancel job(s) before remove\n  JobID = 1"
    with pytest.raises(SlurmRefused) as caught:
        run_sacctmgr(Answering({"sacctmgr": refused(said)}), AddUser("a", "ann", AccountLimits()).argv("bench"))
    assert first_error_line(caught.value) == "Job(s) active, cancel job(s) before remove"


def test_usage_is_read_as_a_tree() -> None:
    root, _, imaging, tumours, ann = parse_sshare_usage(SSHARE)
    assert (root.parent, imaging.parent, tumours.parent, ann.parent) == ("", "root", "_imaging", "tumours")
    assert (ann.user, ann.share_fraction, ann.raw_usage, ann.gpu_hours) == ("ann", 0.5, 400.0, 1.5)
    assert list(parse_sshare_usage("garbage\n\n")) == []


def access(enforce: str = "associations,limits,qos") -> AccountAccess:
    slurm = Answering(all_answers())
    return AccountAccess(
        parse_accounting_config(CONFIG.replace("associations,limits,qos", enforce)),
        read_accounting(slurm, "bench"),
    )


def test_a_job_gets_the_account_of_its_project_only_if_its_user_has_it() -> None:
    assert access().find_account("ann", "lab") == "lab"
    assert access().find_account("bert", "lab") is None


def test_a_class_is_refused_where_slurm_would_refuse_it() -> None:
    seen = access()
    assert seen.qos_refusal_reason("ann", "lab", "normal") is None
    assert "the QOS interactive does not exist" in (seen.qos_refusal_reason("ann", "lab", "interactive") or "")
    assert "ann may not use the QOS urgent" in (seen.qos_refusal_reason("ann", "lab", "urgent") or "")
    assert "in the account lab" in (seen.qos_refusal_reason("ann", "elsewhere", "urgent") or "")
    assert seen.qos_refusal_reason("stranger", "lab", "urgent") is None
    assert access("associations").qos_refusal_reason("ann", "lab", "urgent") is None


def test_while_the_accounting_is_away_nothing_is_refused_and_the_last_picture_stays() -> None:
    slurm = Answering({"config": EngineUnavailable("away")})
    accounts = SlurmAccounts(slurm)
    accounts.refresh_if_stale()
    assert accounts.find_account("ann", "lab") is None
    assert accounts.qos_refusal_reason("ann", "lab", "urgent") is None
    slurm.answers = all_answers()
    accounts.refresh_after_change()
    assert accounts.find_account("ann", "lab") == "lab"
    slurm.answers = {"config": EngineUnavailable("away")}
    accounts.refresh_after_change()
    assert accounts.find_account("ann", "lab") == "lab"


def test_usage_is_asked_for_once_in_a_while() -> None:
    slurm = Answering(all_answers())
    accounts = SlurmAccounts(slurm)
    assert len(accounts.account_usage()) == 5
    assert len(accounts.account_usage()) == 5
    assert len(slurm.asked) == 1


def test_usage_of_a_slurm_that_is_away_is_nothing_rather_than_an_error() -> None:
    assert SlurmAccounts(Answering({"sshare": EngineUnavailable("away")})).account_usage() == ()
