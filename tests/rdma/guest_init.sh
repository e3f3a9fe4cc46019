#!/bin/busybox sh
# shellcheck shell=dash
# The first process of the guest (guest.py): drivers, a network that only this machine sees, an RDMA
# device on it; then /etc/script.
# ttyS0 is the kernel's console, ttyS1 takes the script's output, ttyS2 its exit status.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
for tty in 1 2; do stty -F /dev/ttyS$tty raw -echo; done
for module in /modules/*.ko; do insmod "$module" || echo "no $module" > /dev/ttyS1; done
LD_LIBRARY_PATH=$(cat /etc/libraries)
export HOME=/tmp LD_LIBRARY_PATH
ulimit -l unlimited
ip link set lo up
ip link add dummy0 type dummy 2> /dev/null
ip link set dummy0 mtu 4200 up # an MTU of 4096 and its headers
ip addr add 10.77.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
cd /work || exit
sh /etc/script > /dev/ttyS1 2>&1 < /dev/null
echo $? > /dev/ttyS2
stty -F /dev/ttyS1 sane # waits until the line has drained
stty -F /dev/ttyS2 sane
poweroff -f
