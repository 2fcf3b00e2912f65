# Runs a task in a container on a node of Slurm. Its text follows, in the script of the job, what names the task:
#
#   heliostat_base=/var/tmp/heliostat-1001   what containers of this user keep on this node
#   heliostat_name=77.0.0                    number in Slurm, restarts, task
#
# A folder of that name in there is the container's own as long as somebody holds its lock. Slurm may kill everything at any
# moment: what is left then is removed by the guard, where Slurm loses sight of it, or by the next one of this user that begins here.
# URG means TERM for what runs inside: unlike TERM, it harms none of the tools that hold the container.

heliostat_fail() {
    echo "heliostat: $1" >&2
    exit 126 # 125 would mean that it ran before
}

# $1 folder, $2 lock, which is held: the processes first, which have mounts of the folder or are podman's own.
heliostat_remove='
end() {
    for file in $(grep -lsF -- "$1/" /proc/[0-9]*/mountinfo; grep -lszxF -- "XDG_RUNTIME_DIR=$1" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        kill -s KILL "${pid%/*}"
    done
}
if [ -d "$1/s/overlay" ] || [ -d "$1/t" ] || [ -d "$1/j" ]; then end "$1"; fi
rm -rf -- "$1"
if [ -e "$1" ]; then # files of other users of the container
    export XDG_RUNTIME_DIR="$1"
    podman --root="$1/s" --runroot="$1/c" --tmpdir="$1/t" unshare rm -rf -- "$1/s" "$1/c"
    end "$1"
    rm -rf -- "$1"
fi
rm -f -- "$2"
'

heliostat_enter() {
    umask 077
    mkdir "$heliostat_base" 2>/dev/null
    if [ -L "$heliostat_base" ] || [ ! -d "$heliostat_base" ] || [ ! -O "$heliostat_base" ]; then
        heliostat_fail "$heliostat_base on $SLURMD_NODENAME cannot be made, or is not yours; tell an admin: scratch in [containers]"
    fi
    chmod 700 "$heliostat_base"
    for heliostat_lock in "$heliostat_base"/*.lock; do
        [ ! -e "$heliostat_lock" ] || flock -n "$heliostat_lock" \
            /bin/sh -c "$heliostat_remove" remove "${heliostat_lock%.lock}" "$heliostat_lock" >/dev/null 2>&1
    done
    heliostat_folder=$heliostat_base/$heliostat_name heliostat_lock=$heliostat_base/$heliostat_name.lock
    while :; do
        exec 9>>"$heliostat_lock"
        flock 9
        [ ! "$heliostat_lock" -ef /proc/self/fd/9 ] || break # it was swept between the two
    done
    trap heliostat_leave EXIT
    [ "${#heliostat_folder}" -le 48 ] || heliostat_fail "$heliostat_folder is too long a name for podman; tell an admin: scratch in [containers]"
    mkdir -p "$heliostat_folder/s" "$heliostat_base/images" || heliostat_fail "$heliostat_folder cannot be made"
    echo "$$ $SLURMD_NODENAME" >"$heliostat_folder/shell"
    umask 022
    (setsid flock "$heliostat_lock" /bin/sh -c "$heliostat_remove" guard "$heliostat_folder" "$heliostat_lock" \
        9>&- </dev/null >/dev/null 2>&1 &)
}

heliostat_leave() {
    /bin/sh -c "$heliostat_remove" leave "$heliostat_folder" "$heliostat_lock" >/dev/null 2>&1
}

heliostat_needs() { # podman
    command -v "$1" >/dev/null || heliostat_fail "$1 is not installed on $SLURMD_NODENAME"
    [ "$1" = podman ] || return 0
    if ! grep -qsE "^($(id -un)|$(id -u)):" /etc/subuid && ! grep -qs '^subid:' /etc/nsswitch.conf; then
        heliostat_fail "podman needs a range of user numbers for $(id -un) in /etc/subuid and /etc/subgid of $SLURMD_NODENAME; tell an admin"
    fi
}

heliostat_look() { # at what is the node's own
    heliostat_oci=runc
    if [ -e /sys/fs/cgroup/cgroup.controllers ] && command -v crun >/dev/null; then heliostat_oci=crun; fi
    heliostat_files=$(ulimit -Hn)
    [ "$heliostat_files" != unlimited ] || heliostat_files=$(cat /proc/sys/fs/nr_open) # `read` reads it by single bytes, in vain
    heliostat_processes=$(cat /proc/sys/kernel/pid_max)
    heliostat_most=$(sed -n 's/^Max processes  *[^ ]*  *\([0-9][0-9]*\) .*/\1/p' /proc/self/limits)
    if [ -n "$heliostat_most" ] && [ "$heliostat_most" -lt "$heliostat_processes" ]; then
        heliostat_processes=$heliostat_most
    fi
    heliostat_conf=/etc/containers/containers.conf heliostat_registries=/etc/containers/registries.conf
    [ -e "$heliostat_conf" ] || heliostat_conf=/dev/null
    [ -e "$heliostat_registries" ] || heliostat_registries=/dev/null
}

# $1 how many; names the GPUs Slurm gave, and their files: Slurm counts those it lets us see, the container wants uuids.
heliostat_gpus() {
    heliostat_count=0 heliostat_uuids=''
    [ "$1" -gt 0 ] || return 0
    command -v nvidia-smi >/dev/null || heliostat_fail "$SLURMD_NODENAME has no nvidia-smi, so no container can have its GPUs"
    heliostat_uuids=$(nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=uuid --format=csv,noheader | tr '\n' ,)
    heliostat_uuids=${heliostat_uuids%,}
    for heliostat_uuid in $(echo "$heliostat_uuids" | tr , ' '); do
        heliostat_file=$(grep -lsF -- "$heliostat_uuid" /proc/driver/nvidia/gpus/*/information | head -n 1)
        heliostat_minor=$(sed -n 's/^Device Minor:[[:space:]]*\([0-9]*\).*/\1/p' "${heliostat_file:-/dev/null}")
        case $heliostat_uuid in *[!A-Za-z0-9-]*) heliostat_fail "nvidia-smi on $SLURMD_NODENAME: $heliostat_uuids" ;; esac
        eval "heliostat_gpu$heliostat_count=\$heliostat_uuid heliostat_device$heliostat_count=/dev/nvidia\$heliostat_minor"
        heliostat_count=$((heliostat_count + 1))
    done
    [ "$heliostat_count" = "$1" ] || heliostat_fail "$SLURMD_NODENAME gave $heliostat_count GPUs, not $1"
}

heliostat_first() { # the first process inside, by its number out here
    for heliostat_file in "$heliostat_folder"/c/overlay-containers/*/userdata/pidfile; do
        [ ! -s "$heliostat_file" ] || {
            cat "$heliostat_file"
            return
        }
    done
    heliostat_pid=$heliostat_tool heliostat_own=$(readlink /proc/self/ns/pid)
    while read -r heliostat_pid _ <"/proc/$heliostat_pid/task/$heliostat_pid/children" || [ -n "$heliostat_pid" ]; do
        [ "$(readlink "/proc/$heliostat_pid/ns/pid")" = "$heliostat_own" ] || {
            echo "$heliostat_pid"
            return
        }
    done
}

heliostat_insiders() { # all but the first, which only looks after the others
    heliostat_init=$(heliostat_first)
    heliostat_space=$(readlink "/proc/${heliostat_init:-none}/ns/pid")
    [ -n "$heliostat_space" ] || return
    heliostat_space=${heliostat_space#pid:?}
    for heliostat_file in $(find /proc/[0-9]*/ns/pid -maxdepth 0 -lname "pid:?${heliostat_space%?}?"); do
        heliostat_pid=${heliostat_file#/proc/}
        heliostat_pid=${heliostat_pid%%/*}
        [ "$heliostat_pid" = "$heliostat_init" ] || echo "$heliostat_pid"
    done
}

heliostat_tell() { # as long as nothing runs inside, the tool
    [ -n "$heliostat_tool" ] || return 0
    heliostat_heard=$(heliostat_insiders 2>/dev/null)
    kill -s TERM ${heliostat_heard:-$heliostat_tool} 2>/dev/null
}

heliostat_run() { # heliostat_task becomes the tool, with our parameters; sets code
    heliostat_tool='' heliostat_reset=''
    trap 'heliostat_told=1; heliostat_tell' URG
    trap : TERM INT HUP QUIT USR1 USR2
    # What a shell puts into the background is deaf to these two.
    if env --default-signal=INT,QUIT true 2>/dev/null; then heliostat_reset='env --default-signal=INT,QUIT'; fi
    [ -z "$heliostat_told" ] || exit 143
    heliostat_task "$@" 9>&- &
    heliostat_tool=$!
    [ -z "$heliostat_told" ] || heliostat_tell
    (heliostat_sweep 7<&- 8<&- 9>&- </dev/null >/dev/null 2>&1 &)
    while :; do
        wait "$heliostat_tool"
        code=$?
        if [ "$code" -le 128 ] || ! kill -s 0 "$heliostat_tool" 2>/dev/null; then break; fi # else only a signal came
    done
    heliostat_full=''
    if [ "$code" = 137 ] && [ -z "$heliostat_told" ] && heliostat_was_full 2>/dev/null; then heliostat_full=1; fi
}

# Whether all memory of the job, or of its step, was in use once. With control groups of version 1 Slurm does not hear of a kill in
# the group that runc makes below its own, and the count goes with that group.
heliostat_was_full() {
    heliostat_group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    while case $heliostat_group in */job_*) ;; *) return 1 ;; esac do
        read -r heliostat_limit <"$heliostat_group/memory.limit_in_bytes" || return 1
        read -r heliostat_peak <"$heliostat_group/memory.max_usage_in_bytes" || return 1
        [ "$heliostat_peak" -le "$((heliostat_limit - 1048576))" ] || return 0
        heliostat_group=${heliostat_group%/*}
    done
}
