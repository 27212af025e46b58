#!/bin/bash
# A Debian or Ubuntu in which there is nothing but git, make and certificates: no compiler, no toolkit,
# no Python. It shows what a toolkit on the machine hides, and what another release does not have.
#
#   bare_root.sh possible [SUITE [ARCH]]   exit status 0; or 1 and a line that says what is lacking
#   bare_root.sh make DIR [SUITE [ARCH]]   makes DIR, with a clone of this repository's HEAD in it
#   bare_root.sh run DIR CMD               runs the shell command CMD in that clone
#
# SUITE is another release than this machine's, such as trixie or sid on a Debian; ARCH another processor, arm64,
# which qemu emulates.
#
# Packages and wheels come from where this machine has them from: its sources of apt, proxies,
# certificates and settings of pip go along. A command has its own mounts and processes, which go with
# it however it ends, so that DIR can simply be removed.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
course='/root/a b/Ü'  # a space and an umlaut, as many a home folder has them
export PATH=$PATH:/usr/sbin:/sbin

lacks() { echo "$*"; exit 1; }
as_guest() { unshare --mount --pid --fork --kill-child "$@"; }

possible() {
  [ "$(id -u)" = 0 ] || lacks "not root"
  command -v apt-get >/dev/null || lacks "no apt-get"
  if ! command -v debootstrap >/dev/null; then
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive \
      apt-get -q install -y --no-install-recommends debootstrap; } >&2 || lacks "no debootstrap"
  fi
  [ -z "$1" ] || [ -e "/usr/share/debootstrap/scripts/$1" ] || lacks "debootstrap does not know $1"
  [ -z "$1" ] || [ "$(. /etc/os-release && echo "$ID")" = debian ] || lacks "$1 is Debian's, this machine is not"
  [ -z "$2" ] || grep -qsx enabled "/proc/sys/fs/binfmt_misc/qemu-${2/arm64/aarch64}" ||
    lacks "no qemu-user that runs programs for $2 (Debian's qemu-user-static)"
  as_guest chroot / true 2>/dev/null || lacks "no unshare or no chroot"
  as_guest sh -c 'mount -t proc proc /proc' 2>/dev/null || lacks "no mount"
  git -C "$repository" rev-parse --verify -q HEAD >/dev/null || lacks "no git repository"
}

# "URI suite component" of each source of the distribution itself; others may need what is not there.
sources() {
  local codename=$1 origin=$2
  apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' \
    'Created-By: Packages' | awk -F'|' -v codename="$codename" -v origin="$origin" '
    ($1 == origin || $1 !~ /^[A-Za-z]/) && index($3, codename) == 1 { print $2, $3, $4 }'
}

copy() {  # copy ROOT PATH...: to the same place, what there is
  local root=$1 path
  shift
  for path in "$@"; do
    [ -e "$path" ] || continue
    mkdir -p "$root$(dirname "$path")"
    cp -aL --remove-destination "$path" "$root$(dirname "$path")/"
  done
}

make_root() {
  local root=$1 codename origin mirror list= file suite
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  origin=$(. /etc/os-release && echo "${ID^}")
  suite=${2:-$codename}
  mirror=$(sources "$codename" "$origin" | awk -v suite="$codename" '$2 == suite { print $1; exit }')
  case $mirror in  # a list of mirrors, which only apt understands
    mirror+file:*) list=${mirror#mirror+file:} list=${list%/}
                   mirror=$(awk '/^http/ { print $1; exit }' "$list") ;;
  esac
  [ -n "$mirror" ] || { echo "apt has no source of $codename"; exit 1; }
  debootstrap ${3:+--arch="$3"} --variant=minbase --include=ca-certificates,git,make "$suite" "$root" "$mirror"

  if [ "$suite" = "$codename" ]; then sources "$codename" "$origin" | sed 's/^/deb /'
  else echo "deb ${mirror%/} $suite main"
  fi >"$root/etc/apt/sources.list"
  copy "$root" /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/apt.conf ${list:+"$list"}
  # Hooks would call programs that the root has not.
  for file in /etc/apt/apt.conf.d/*; do
    grep -qE 'Invoke|Pre-Install-Pkgs' "$file" || copy "$root" "$file"
  done
  copy "$root" /etc/resolv.conf /etc/hosts /usr/local/share/ca-certificates /etc/pip.conf
  cp -a /etc/ssl/certs/. "$root/etc/ssl/certs/"
  [ ! -d ~/.config/pip ] || { mkdir -p "$root/root/.config" && cp -aL ~/.config/pip "$root/root/.config/"; }
  [ ! -d ~/.pip ] || cp -aL ~/.pip "$root/root/"
  git clone -q --no-hardlinks "$repository" "$root$course"
}

run() {
  local root=$1 command=$2 variable
  local environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  # How this machine reaches the network, and nothing else of its environment.
  while IFS= read -r variable; do environment+=("$variable=${!variable}"); done < <(
    compgen -e | grep -E '^([A-Za-z]+_(proxy|PROXY)|PIP_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE)$')
  as_guest bash -eu -c '
    root=$1 course=$2 command=$3
    shift 3
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    exec env -i "$@" chroot "$root" bash -eu -o pipefail -c "cd \"$course\"; $command"
    ' bash "$root" "$course" "$command" "${environment[@]}"
}

case ${1-} in
  possible) possible "${2-}" "${3-}" ;;
  make) make_root "$2" "${3-}" "${4-}" ;;
  run) run "$2" "$3" ;;
  *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;;
esac
