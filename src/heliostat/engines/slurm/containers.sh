# Runs a task in a container on a Slurm node. The script of the job sets these variables before this text:
#
#   heliostat_base=/var/tmp/heliostat-1001   folder for all containers of this user on this node
#   heliostat_name=77.0.0                    Slurm job id, restarts, task
#
# The folder heliostat_name in heliostat_base belongs to the container as long as a process holds its lock. Slurm may kill all
# processes at any time: the folder is then removed by the guard, which Slurm does not track, or by this user's next container here.
# URG stands for TERM to the processes in the container: unlike TERM, it does not end the tools that run the container.

heliostat_fail() {
    echo "heliostat: $1" >&2
    exit 126 # 125 would mean that the job has already run
}

# $1 folder, $2 lock, which is held. First ends processes that have mounts of the folder or belong to podman.
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

heliostat_make_folder() {
    umask 077
    mkdir "$heliostat_base" 2>/dev/null
    if [ -L "$heliostat_base" ] || [ ! -d "$heliostat_base" ] || [ ! -O "$heliostat_base" ]; then
        heliostat_fail "$heliostat_base on $SLURMD_NODENAME cannot be created, or is not yours; ask an admin: scratch in [containers]"
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
        [ ! "$heliostat_lock" -ef /proc/self/fd/9 ] || break # else another process removed the file before flock
    done
    trap heliostat_remove_folder EXIT
    [ "${#heliostat_folder}" -le 48 ] || heliostat_fail "The path $heliostat_folder is too long for podman; ask an admin: scratch in [containers]"
    mkdir -p "$heliostat_folder/s" "$heliostat_base/images" || heliostat_fail "$heliostat_folder cannot be created"
    echo "$$ $SLURMD_NODENAME" >"$heliostat_folder/shell"
    umask 022
    (setsid flock "$heliostat_lock" /bin/sh -c "$heliostat_remove" guard "$heliostat_folder" "$heliostat_lock" \
        9>&- </dev/null >/dev/null 2>&1 &)
}

heliostat_remove_folder() {
    /bin/sh -c "$heliostat_remove" leave "$heliostat_folder" "$heliostat_lock" >/dev/null 2>&1
}

heliostat_check_tool() { # $1 for example podman
    command -v "$1" >/dev/null || heliostat_fail "$1 is not installed on $SLURMD_NODENAME"
    [ "$1" = podman ] || return 0
    if ! grep -qsE "^($(id -un)|$(id -u)):" /etc/subuid && ! grep -qs '^subid:' /etc/nsswitch.conf; then
        heliostat_fail "podman needs a range of user ids for $(id -un) in /etc/subuid and /etc/subgid of $SLURMD_NODENAME; ask an admin"
    fi
}

heliostat_read_node() { # OCI runtime, limits and configuration files of this node
    heliostat_oci=runc
    if [ -e /sys/fs/cgroup/cgroup.controllers ] && command -v crun >/dev/null; then heliostat_oci=crun; fi
    heliostat_files=$(ulimit -Hn)
    [ "$heliostat_files" != unlimited ] || heliostat_files=$(cat /proc/sys/fs/nr_open) # `read` cannot read this file byte by byte
    heliostat_processes=$(cat /proc/sys/kernel/pid_max)
    heliostat_most=$(sed -n 's/^Max processes  *[^ ]*  *\([0-9][0-9]*\) .*/\1/p' /proc/self/limits)
    if [ -n "$heliostat_most" ] && [ "$heliostat_most" -lt "$heliostat_processes" ]; then
        heliostat_processes=$heliostat_most
    fi
    heliostat_conf=/etc/containers/containers.conf heliostat_registries=/etc/containers/registries.conf
    [ -e "$heliostat_conf" ] || heliostat_conf=/dev/null
    [ -e "$heliostat_registries" ] || heliostat_registries=/dev/null
}

# $1 number of GPUs. Finds their UUIDs and device files: Slurm numbers the visible GPUs, but containers need UUIDs.
heliostat_gpus() {
    heliostat_count=0 heliostat_uuids=''
    [ "$1" -gt 0 ] || return 0
    command -v nvidia-smi >/dev/null || heliostat_fail "$SLURMD_NODENAME has no nvidia-smi, which containers with GPUs need"
    heliostat_uuids=$(nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu=uuid --format=csv,noheader | tr '\n' ,)
    heliostat_uuids=${heliostat_uuids%,}
    for heliostat_uuid in $(echo "$heliostat_uuids" | tr , ' '); do
        heliostat_file=$(grep -lsF -- "$heliostat_uuid" /proc/driver/nvidia/gpus/*/information | head -n 1)
        heliostat_minor=$(sed -n 's/^Device Minor:[[:space:]]*\([0-9]*\).*/\1/p' "${heliostat_file:-/dev/null}")
        case $heliostat_uuid in *[!A-Za-z0-9-]*) heliostat_fail "nvidia-smi on $SLURMD_NODENAME: $heliostat_uuids" ;; esac
        eval "heliostat_gpu$heliostat_count=\$heliostat_uuid heliostat_device$heliostat_count=/dev/nvidia\$heliostat_minor"
        heliostat_count=$((heliostat_count + 1))
    done
    [ "$heliostat_count" = "$1" ] || heliostat_fail "$SLURMD_NODENAME has $heliostat_count visible GPUs, expected $1"
}

heliostat_first() { # prints the pid, outside of the container, of its first process
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

heliostat_container_pids() { # all but the first process, which is only an init
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

heliostat_send_term() { # to the processes in the container; if there are none yet, to the tool
    [ -n "$heliostat_tool" ] || return 0
    heliostat_pids=$(heliostat_container_pids 2>/dev/null)
    kill -s TERM ${heliostat_pids:-$heliostat_tool} 2>/dev/null
}

heliostat_run() { # runs heliostat_task, which execs the tool, with these parameters; sets code
    heliostat_tool='' heliostat_reset=''
    trap 'heliostat_stopping=1; heliostat_send_term' URG
    trap : TERM INT HUP QUIT USR1 USR2
    # A shell starts background processes with these two signals ignored.
    if env --default-signal=INT,QUIT true 2>/dev/null; then heliostat_reset='env --default-signal=INT,QUIT'; fi
    [ -z "$heliostat_stopping" ] || exit 143
    heliostat_task "$@" 9>&- &
    heliostat_tool=$!
    [ -z "$heliostat_stopping" ] || heliostat_send_term
    (heliostat_clean_images 7<&- 8<&- 9>&- </dev/null >/dev/null 2>&1 &)
    while :; do
        wait "$heliostat_tool"
        code=$?
        if [ "$code" -le 128 ] || ! kill -s 0 "$heliostat_tool" 2>/dev/null; then break; fi # else a signal interrupted wait
    done
    heliostat_full=''
    if [ "$code" = 137 ] && [ -z "$heliostat_stopping" ] && heliostat_was_full 2>/dev/null; then heliostat_full=1; fi
}

# Whether the job, or its step, ever reached its memory limit. With cgroups v1, Slurm does not notice an out-of-memory kill in the
# group that runc creates below Slurm's own, and the kernel's counter disappears with that group.
heliostat_was_full() {
    heliostat_group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
    while case $heliostat_group in */job_*) ;; *) return 1 ;; esac do
        read -r heliostat_limit <"$heliostat_group/memory.limit_in_bytes" || return 1
        read -r heliostat_peak <"$heliostat_group/memory.max_usage_in_bytes" || return 1
        [ "$heliostat_peak" -le "$((heliostat_limit - 1048576))" ] || return 0
        heliostat_group=${heliostat_group%/*}
    done
}
