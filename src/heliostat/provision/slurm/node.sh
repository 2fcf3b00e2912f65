# Sets up this machine as a node of a Slurm cluster, as root. Repeatable; prints what it changed.
set -eu
umask 022
changed=''

say() { printf '%s\n' "$*"; }
stop() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

check() {
    [ "$(id -u)" = 0 ] || stop 'Only root can set up a node.' 'Run it as root: ssh root@NODE sh < node.sh'
    here=$(hostname -s 2>/dev/null || uname -n)
    case " $hosts " in
        *" $here "*) ;;
        *) stop "This host is $here, which is not in nodes.toml." "Add it there and print this script again. Nodes are: $hosts" ;;
    esac
    for file in "$conf/slurm.conf" "$conf/gres.conf" "$conf/cgroup.conf" "$unit"; do
        [ ! -e "$file" ] || [ "$(head -n 1 "$file")" = "$mark" ] ||
            stop "$file was not written by Heliostat. Nothing was changed." "Move it away if it is not needed: mv $file $file.old"
    done
}

# Jobs with several tasks need srun and scontrol on their nodes.
packages() {
    PATH=$PATH:/usr/sbin:/sbin
    if command -v slurmd >/dev/null && command -v munged >/dev/null && command -v srun >/dev/null; then return; fi
    say 'installing slurmd, slurm-client, munge'
    apt-get -q update </dev/null >&2 || say 'apt-get could not update its package lists; continuing with the existing ones'
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends slurmd slurm-client munge </dev/null >&2 ||
        stop 'apt-get could not install slurmd, slurm-client and munge.' 'Install them and run this again.'
}

decoded() { base64 -d; }

# place FILE MODE OWNER [FILTER]: writes standard input to FILE, unless it has this content already
place() {
    rm -f "$1.draft"
    (umask 077 && "${4:-cat}" >"$1.draft")
    if [ -e "$1" ] && cmp -s "$1" "$1.draft"; then
        rm -f "$1.draft"
        return 0
    fi
    chown "$3" "$1.draft"
    chmod "$2" "$1.draft"
    if [ -e "$1" ]; then
        cp -p "$1" "$1.before"
        say "replacing $1 (the old file is $1.before)"
    else
        say "writing $1"
    fi
    mv "$1.draft" "$1"
    changed="$changed $(basename "$1")"
}

folders() {
    mkdir -p "$conf" "$spool" "$logs" "$(dirname "$key")" "$(dirname "$unit")"
    chown munge: "$(dirname "$key")"
    chmod 700 "$(dirname "$key")"
    chown slurm: "$logs"
}

have_key() {
    [ -e "$key" ] || stop "$key does not exist." "Copy it from the controller (mode 0400, owner munge), or print this script with --with-key."
}

services() {
    if [ ! -d /run/systemd/system ] || [ -n "$prefix" ]; then
        say 'systemd is not used here: start munged, then run'
        say "  SLURM_CONF=$conf/slurm.conf slurmd -D"
        return
    fi
    case "$changed " in *' munge.key '*) systemctl restart munge </dev/null ;; esac
    systemctl daemon-reload </dev/null
    systemctl -q enable --now munge </dev/null
    systemctl -q enable slurmd </dev/null
    if [ -n "$changed" ] || ! systemctl -q is-active slurmd; then
        say 'starting slurmd'
        systemctl restart slurmd </dev/null
    fi
    wait_for_slurmd
    for node in $nodes; do
        case $node in "$here="*) resume "${node#*=}" ;; esac
    done
}

# slurmd waits about 20 seconds for the device files of GPUs, and then gives up.
wait_for_slurmd() {
    seconds=0
    until scontrol show slurmd </dev/null >/dev/null 2>&1; do
        [ "$seconds" -lt 60 ] || stop 'slurmd was started but does not respond.' "See \`journalctl -u slurmd\` and $logs/slurmd.log, then run this again."
        sleep 1
        seconds=$((seconds + 1))
    done
}

# resume NODE: resumes a node that Slurm drained because slurmd registered before its GPUs existed
resume() {
    case "$(scontrol -o show node "$1" </dev/null 2>&1)" in
        *DRAIN*' Reason=gres/gpu count reported lower than configured ('*)
            say "resuming $1"
            scontrol update "nodename=$1" state=resume </dev/null
            ;;
    esac
}
