# The first process of a node. It runs in mount, network and process namespaces of its own; what it
# mounts is seen by the node alone and goes with it.
#
#   $1    the directory of the sandbox
#   $2    the program to become when all is prepared: pause
#   $3…   directories that must stay where they are: the sandbox's own, and those of its programs
set -eu
home=$1 pause=$2
shift 2
own=$home/node

mount -t proc proc /proc

# Programs of a node write to fixed places. Here these are the sandbox's own, so that nothing of another
# node, or of a container engine of this machine, is seen or touched. /srv is where the node and this machine
# exchange files: whoever knows the sandbox finds it there.
for place in /tmp /run /var/lib /var/log /srv; do
  mkdir -p "$own$place"
  # From inside, relative paths lead to what is covered in the next step.
  cd "$place"
  mount --bind "$own$place" "$place"
  for kept in "$@"; do
    case $kept in "$place"/*)
      mkdir -p "$kept"
      mount --no-canonicalize --bind "${kept#"$place"/}" "$kept"
    esac
  done
done
cd /
chmod 1777 /tmp /srv
mkdir -p /run/lock /run/netns /tmp/hostpath_pv

# The kubelet would set these for the whole machine. It finds them set, and leaves the machine alone.
sysctl() {
  mkdir -p "$own/sysctl/${1%/*}"
  echo "$2" >"$own/sysctl/$1"
  mount --bind "$own/sysctl/$1" "/proc/sys/$1"
}
sysctl vm/overcommit_memory 1
sysctl vm/panic_on_oom 0
sysctl kernel/panic 10
sysctl kernel/panic_on_oops 1
sysctl kernel/keys/root_maxkeys 1000000
sysctl kernel/keys/root_maxbytes 25000000

# These belong to the network namespace. Pods reach each other and this machine reaches them; where no way
# leads they hear so at once, however often they ask.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 0 >/proc/sys/net/ipv4/icmp_ratelimit

# Mounts that the kubelet makes appear in the pods that ask for them.
mount --make-rshared /
exec "$pause" -volumes /tmp/hostpath_pv
