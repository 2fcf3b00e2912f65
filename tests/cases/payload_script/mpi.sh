exec 8<&-
umask 022
export HOME=/home/ann
export USER=ann
export LOGNAME=ann
export SHELL=/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LANG=C.UTF-8
export HELIOSTAT_HOME=/var/lib/heliostat
export HELIOSTAT_JOB_ID=12
export HELIOSTAT_JOB_NAME=train
export HELIOSTAT_PROJECT=vision
export HELIOSTAT_ATTEMPT=1
export HELIOSTAT_ATTEMPT_ID=12.1
export HELIOSTAT_MARK=ab12-12.1
export HELIOSTAT_NODE=gpu-1
export HELIOSTAT_CPUS=2
export HELIOSTAT_MEMORY_MIB=4096
export HELIOSTAT_GPUS=1
export HELIOSTAT_CHECKPOINT_DIR=/var/lib/heliostat/jobs/12/checkpoints
export HELIOSTAT_CHECKPOINT_FILE=/var/lib/heliostat/jobs/12/checkpoints/saved
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=GPU-5f1c,GPU-90ab
export NVIDIA_VISIBLE_DEVICES=GPU-5f1c,GPU-90ab
export OMP_NUM_THREADS=2
export HELIOSTAT_TASKS=2
export HELIOSTAT_TASK_COUNT=2
export HELIOSTAT_TASK_HOSTS=localhost,localhost
export WORLD_SIZE=2
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=20012
cd -- / || {
    echo 'heliostat: the working directory cannot be entered' >&2
    exit 126
}
exec /bin/sh -c 'HELIOSTAT_HOSTS_FILE="$HELIOSTAT_CHECKPOINT_DIR/hosts.$HELIOSTAT_ATTEMPT"; export HELIOSTAT_HOSTS_FILE; echo "$HELIOSTAT_TASK_HOSTS" | tr , "\n" >"$HELIOSTAT_HOSTS_FILE" || exit 126; exec mpirun -np 2 -machinefile "$HELIOSTAT_HOSTS_FILE" "$@"' mpirun ./solve 'a b'
