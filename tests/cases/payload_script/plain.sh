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
export HELIOSTAT_GPUS=0
export HELIOSTAT_CHECKPOINT_DIR=/var/lib/heliostat/jobs/12/checkpoints
export HELIOSTAT_CHECKPOINT_FILE=/var/lib/heliostat/jobs/12/checkpoints/saved
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=''
export NVIDIA_VISIBLE_DEVICES=void
export OMP_NUM_THREADS=2
cd -- / || {
    echo 'heliostat: the working directory cannot be entered' >&2
    exit 126
}
exec python train.py --lr 0.1
