# Makes this machine a node of a Slurm cluster, as root. May be repeated; says what it did.
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
        *) stop "This is $here, which is not in nodes.toml." "Add it there, and print this script again. Nodes are: $hosts" ;;
    esac
    for file in "$conf/slurm.conf" "$conf/gres.conf" "$conf/cgroup.conf" "$unit"; do
        [ ! -e "$file" ] || [ "$(head -n 1 "$file")" = "$mark" ] ||
            stop "$file was not made by Heliostat; nothing was changed." "Move it away if it is not needed: mv $file $file.old"
    done
}

# Jobs of several tasks need srun and scontrol on their nodes.
packages() {
    PATH=$PATH:/usr/sbin:/sbin
    if command -v slurmd >/dev/null && command -v munged >/dev/null && command -v srun >/dev/null; then return; fi
    say 'installing slurmd, slurm-client, munge'
    apt-get -q update </dev/null >&2 || say 'apt-get could not update its lists; going on with those that are here'
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends slurmd slurm-client munge </dev/null >&2 ||
        stop 'apt-get could not install slurmd, slurm-client and munge.' 'Install them, and run this again.'
}

decoded() { base64 -d; }

# place FILE MODE OWNER [FILTER]: what comes on standard input, if it is not there already
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
        say "replacing $1 (the old one is $1.before)"
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
    [ -e "$key" ] || stop "There is no $key." "Copy it from the controller (mode 0400, of the user munge), or print this script with --with-key."
}

services() {
    if [ ! -d /run/systemd/system ] || [ -n "$prefix" ]; then
        say 'without systemd: start munged, and then'
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
    answers
    for node in $nodes; do
        case $node in "$here="*) resume "${node#*=}" ;; esac
    done
}

# Slurm waits some 20 seconds for the files of GPUs, and then gives up.
answers() {
    seconds=0
    until scontrol show slurmd </dev/null >/dev/null 2>&1; do
        [ "$seconds" -lt 60 ] || stop 'slurmd was started and does not answer.' "See \`journalctl -u slurmd\` and $logs/slurmd.log, and run this again."
        sleep 1
        seconds=$((seconds + 1))
    done
}

# resume NODE: that Slurm itself has drained, when it knew of GPUs and slurmd did not yet
resume() {
    case "$(scontrol -o show node "$1" </dev/null 2>&1)" in
        *DRAIN*' Reason=gres/gpu count reported lower than configured ('*)
            say "resuming $1"
            scontrol update "nodename=$1" state=resume </dev/null
            ;;
    esac
}
