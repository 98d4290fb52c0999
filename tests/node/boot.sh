#!/bin/sh
# Process 1 of a test host's namespaces: builds the root file system, and then becomes systemd.
# Arguments: the cached root file system, a scratch folder, the host's name, and the folders and files
# of this machine that the host shares.
set -eu
lower=$1 scratch=$2 name=$3
shift 3

mount --make-rprivate /
# the host sees this size as the size of its disk; no test writes that much
mount -t tmpfs -o size=64g,mode=755 tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work" \
  overlay "$scratch/root"
for shared in "$@"; do
  mkdir -p "$scratch/root${shared%/*}"
  if [ -d "$shared" ]; then mkdir -p "$scratch/root$shared"; else touch "$scratch/root$shared"; fi
  mount --bind "$shared" "$scratch/root$shared"
done
cd "$scratch/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do
  ln -s "fd/${stream%:*}" "dev/${stream#*:}"
done
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
# The distribution's timers would change files of the host in the middle of a test, such as at midnight.
mkdir -p run/systemd/system
ln -s /dev/null run/systemd/system/timers.target
echo "$name" >etc/hostname
printf '127.0.0.1 localhost %s\n' "$name" >etc/hosts
pivot_root . mnt
umount -l /mnt
ip link set lo up
exec env -i container=disttrain-test \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --log-target=null --unit=multi-user.target
