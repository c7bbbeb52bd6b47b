# shellcheck shell=bash
# What launch/mpirun and launch/srun have in common; sourced. A job is started by one line: settings of its environment
# and the launcher's words. The line that is printed is the array that is run.

me=$(basename -- "$0")
quiet=false
dry_run=false
# shellcheck disable=SC2034  # read by who sources this
timeout=        # seconds; none
settings=()     # NAME=value
launcher=()     # the launcher's own words
pass_names=()   # variables that every rank gets
pass_values=()  # NAME=value that every rank gets

refuse() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 2
}

say() {
  $quiet || printf '%s: %s\n' "$me" "$*" >&2
}

# A setting that the user has not made.
setting() {
  [[ -v $1 ]] || settings+=("$1=$2")
}

require_value() {
  [[ $# -ge 2 ]] || refuse "$1 needs a value; see $me --help"
}

require_number() {
  [[ $2 =~ ^[1-9][0-9]*$ ]] || refuse "$1 $2: not a whole number of at least 1"
}

# --env NAME or NAME=VALUE
pass_on() {
  if [[ $1 =~ ^[A-Za-z_][A-Za-z_0-9]*= ]]; then
    pass_values+=("$1")
  elif [[ $1 =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]]; then
    [[ -v $1 ]] || refuse "--env $1: is not set here; set it, or give --env $1=VALUE"
    export "${1?}"
    pass_names+=("$1")
  else
    refuse "--env $1: neither NAME nor NAME=VALUE"
  fi
}

# The exported variables that change what a rank computes or how it finds its libraries.
pass_usual_names() {
  local name
  while IFS= read -r name; do
    case $name in
      AMAXSCOPE* | NCCL_* | OMP_* | OPENBLAS_* | CUDA_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | UCX_* | PATH | LD_LIBRARY_PATH) pass_names+=("$name") ;;
    esac
  done < <(compgen -e | sort)
}

# A rank sees pipes; only here can be seen whether a person is watching.
tell_terminal() {
  if [[ -t 2 && ! -v AMAXSCOPE_TERMINAL ]]; then
    settings+=(AMAXSCOPE_TERMINAL=1)
  fi
}

# The launcher on PATH that is not this script.
find_launcher() {
  local found
  while IFS= read -r found; do
    [[ $found -ef $0 ]] && continue
    if [[ $found == "$(type -P "$1")" ]]; then echo "$1"; else echo "$found"; fi
    return
  done < <(type -aP "$1")
  return 1
}

# A word as a shell reads it back.
quoted() {
  if [[ $1 =~ ^[A-Za-z0-9_./:,@%+=-]+$ ]]; then printf '%s' "$1"; else printf '%s' "${1@Q}"; fi
}

# Prints the line, and becomes it unless that is all that was asked for.
run_line() {
  local line=("${launcher[@]}" "$@") text='' word
  [[ ${#settings[@]} -eq 0 ]] || line=(env "${settings[@]}" "${line[@]}")
  for word in "${line[@]}"; do text+=${text:+ }$(quoted "$word"); done
  if $dry_run; then
    printf '%s\n' "$text"
    exit 0
  fi
  $quiet || printf '%s\n' "$text" >&2
  exec "${line[@]}"
}
