exec 8<&-
umask 022
export HOME=/home/ann USER=ann LOGNAME=ann SHELL=/bin/bash PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/var/lib/heliostat/bin PYTHONPATH=/var/lib/heliostat/bin/python LANG=C.UTF-8 HELIOSTAT_HOME=/var/lib/heliostat HELIOSTAT_JOB_ID=12 HELIOSTAT_JOB_NAME=train HELIOSTAT_PROJECT=vision HELIOSTAT_ATTEMPT=1 HELIOSTAT_ATTEMPT_ID=12.1 HELIOSTAT_MARK=ab12-12.1 HELIOSTAT_NODE=gpu-1 HELIOSTAT_CPUS=2 HELIOSTAT_MEMORY_MIB=4096 HELIOSTAT_GPUS=1 HELIOSTAT_CHECKPOINT_DIR=/var/lib/heliostat/jobs/12/checkpoints HELIOSTAT_CHECKPOINT_FILE=/var/lib/heliostat/jobs/12/checkpoints/saved CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5f1c,GPU-90ab NVIDIA_VISIBLE_DEVICES=GPU-5f1c,GPU-90ab OMP_NUM_THREADS=2 HELIOSTAT_TASKS=2 HELIOSTAT_TASK_COUNT=2 HELIOSTAT_TASK_HOSTS=localhost,localhost WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=20012
cd -- / || {
    echo 'heliostat: the working directory cannot be entered' >&2
    exit 126
}
heliostat_tasks=2 heliostat_grace=10.0
heliostat_task() {
    case $1 in
    0) export CUDA_VISIBLE_DEVICES=GPU-5f1c; export NVIDIA_VISIBLE_DEVICES=GPU-5f1c; export HELIOSTAT_TASK=0; export HELIOSTAT_TASK_INDEX=0; export RANK=0; export LOCAL_RANK=0 ;;
    1) export CUDA_VISIBLE_DEVICES=GPU-90ab; export NVIDIA_VISIBLE_DEVICES=GPU-90ab; export HELIOSTAT_TASK=1; export HELIOSTAT_TASK_INDEX=1; export RANK=1; export LOCAL_RANK=1 ;;
    esac
    exec /bin/sh -c 'exec torchrun --nnodes=2 --nproc-per-node=1 --node-rank="$HELIOSTAT_TASK_INDEX" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"' torchrun train.py --lr '1 $x'
}
# Runs the tasks of one attempt in parallel. In the payload's script, this text comes after the lines that define them:
#
#   heliostat_tasks=2 heliostat_grace=10.0
#   heliostat_task() { … }   becomes task $1
#
# and before the pipeline that starts them. Each task sends its pid to the watch, waits for a byte that starts it, and sends its
# exit status. A task that is signalled before that byte never starts; one that has started gets each signal once.
# When a task fails, the others get TERM and, after the grace, KILL; the exit status of all is that of the first failure.
# A pipeline is used instead of `&`, because a shell makes background processes ignore INT and QUIT.

heliostat_run() {
    trap : TERM INT HUP QUIT USR1 USR2 # for the task; this shell stays to report its exit status
    (
        read -r heliostat_pid _ </proc/self/stat
        echo "pid $heliostat_pid" >&3
        read -r _ <&6
        exec 3>&- </dev/null >&4 2>&5 4>&- 5>&- 6>&-
        heliostat_task "$1"
    )
    echo "exit $?" >&3
}

heliostat_stop_the_others() {
    [ -z "$heliostat_signal" ] || return # the sender has signalled the tasks too, and kills those left
    kill -s TERM $heliostat_pids
    {
        sleep "$heliostat_grace"
        kill -s KILL $heliostat_pids
    } <&- >&- 4>&- 5>&- &
    heliostat_timer=$!
}

heliostat_watch() {
    heliostat_signal='' heliostat_signalled='' heliostat_pids='' heliostat_timer='' heliostat_failed=0
    heliostat_unknown=$heliostat_tasks # number of tasks whose pid is unknown
    for heliostat_name in TERM INT HUP QUIT USR1 USR2; do
        trap "heliostat_signal=$heliostat_name heliostat_signalled=1" "$heliostat_name"
    done
    while [ "$heliostat_tasks" -gt 0 ]; do
        if ! read -r heliostat_word heliostat_number; then
            [ -n "$heliostat_signalled" ] || break # all tasks have ended
            heliostat_signalled=''                 # read was interrupted by a signal
            continue
        fi
        if [ "$heliostat_word" = pid ]; then
            heliostat_pids="$heliostat_pids $heliostat_number"
            heliostat_unknown=$((heliostat_unknown - 1))
            if [ -n "$heliostat_signal" ] || [ "$heliostat_failed" != 0 ]; then
                kill -s TERM $heliostat_pids # they wait for a byte that is never sent
            elif [ "$heliostat_unknown" = 0 ]; then
                for _ in $heliostat_pids; do echo; done >&6 # one byte for each task: two may read at the same time
            fi
            continue
        fi
        [ "$heliostat_unknown" = 0 ] || kill -s TERM $heliostat_pids # this task ended before its start, so stop all
        heliostat_tasks=$((heliostat_tasks - 1))
        if [ "$heliostat_number" != 0 ] && [ "$heliostat_failed" = 0 ]; then
            heliostat_failed=$heliostat_number
            heliostat_stop_the_others
        fi
    done
    [ -z "$heliostat_timer" ] || kill -s KILL "$heliostat_timer"
    [ "$heliostat_tasks" = 0 ] || [ "$heliostat_failed" != 0 ] || heliostat_failed=137
    exit "$heliostat_failed"
}

trap : TERM INT HUP QUIT USR1 USR2
exec 4>&1 5>&2 2>/dev/null # keep messages of the shell ("Killed") out of the job's log
: | { trap : TERM INT HUP QUIT USR1 USR2
exec 6<>/proc/self/fd/0 </dev/null
{ trap : TERM INT HUP QUIT USR1 USR2; heliostat_run 0 | heliostat_run 1; } 3>&1 >&4 | heliostat_watch
}
