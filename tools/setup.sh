# Shared by ./quickstart and ./check: Debian packages, ccache, configuring. Sourced by bash from the project's root.

project_root=$PWD
jobs=$(nproc 2>/dev/null || echo 2)

# Progress and errors go to stderr; standard output belongs to what the scripts run.
say() { printf '%s\n' "$*" >&2; }

die() {
  say "error: $1"
  [ $# -lt 2 ] || say "$2"
  exit 1
}

# Runs a command with its output in a log; on failure shows the end of the log and returns the status.
logged() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ $status -eq 0 ] || { tail -n 40 "$log" | sed 's/^/    /'; say "(all of it: ${log#"$project_root"/})"; } >&2
  return $status
}

# install_packages GROUP...: what cmake/debian-packages.txt lists under the groups and this machine lacks.
install_packages() {
  local groups=" $* " group package missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    [ -d build ] || say "No Debian package tools here: install what cmake/debian-packages.txt lists by your own means."
    return 0
  fi
  while read -r group package _; do
    case "$groups" in *" $group "*) ;; *) continue ;; esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done <cmake/debian-packages.txt
  [ ${#missing[@]} -gt 0 ] || return 0

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these Debian packages are missing: ${missing[*]}" "Run this script as root, or: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300)
  # A failed update (one mirror of several, say) is no reason to stop: the install decides.
  logged build/logs/apt-update.log "${apt[@]}" update || say "apt-get update failed; trying with the lists at hand"
  logged build/logs/apt-install.log "${apt[@]}" --no-install-recommends install "${missing[@]}" ||
    die "apt-get could not install: ${missing[*]}" "Are Debian's package servers reachable, and is this Debian 12?"
}

# Cache objects inside the project unless the user has a cache, and let all clones share what is equal.
use_ccache() {
  export CCACHE_DIR=${CCACHE_DIR:-$project_root/.cache/ccache}
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$project_root} CCACHE_NOHASHDIR=1
}

find_nvcc() {
  command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; }
}

# configure PRESET [-DNAME=VALUE...]
configure() {
  local preset=$1
  shift
  logged "build/logs/configure-$preset.log" cmake --preset "$preset" "$@" ||
    die "cmake could not configure build/$preset" "If the project was moved or copied, delete build/$preset and try again."
}
