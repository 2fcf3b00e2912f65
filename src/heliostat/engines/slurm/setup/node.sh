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
    for file in slurm.conf gres.conf cgroup.conf; do
        [ ! -e "$conf/$file" ] || [ "$(head -n 1 "$conf/$file")" = "$mark" ] ||
            stop "$conf/$file was not made by Heliostat; nothing was changed." "Move it away if it is not needed: mv $conf/$file $conf/$file.old"
    done
}

packages() {
    PATH=$PATH:/usr/sbin:/sbin
    if command -v slurmd >/dev/null && command -v munged >/dev/null; then return; fi
    say 'installing slurmd, munge'
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends slurmd slurm-client munge </dev/null >&2 ||
        stop 'apt-get could not install slurmd and munge.' 'Install them, and run this again.'
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
    mkdir -p "$conf" "$spool" "$logs" "$(dirname "$key")"
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
    systemctl enable --now munge </dev/null
    systemctl enable slurmd </dev/null
    if [ -n "$changed" ] || ! systemctl -q is-active slurmd; then
        say 'starting slurmd'
        systemctl restart slurmd </dev/null
    fi
}
