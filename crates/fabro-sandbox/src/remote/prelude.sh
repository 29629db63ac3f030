# Runs on the other side, in any POSIX shell. $base is the directory of what fabro keeps there, $id the name of this
# program, $all is 1 where every process belongs to the run.
dir=$base/$id

begin() {
  mkdir -p "$dir" && echo $$ >"$dir/pid" || exit 125
  if [ -e "$dir/stop" ]; then end 143; fi
}

end() {
  rm -rf "$dir"
  exit "$1"
}

# Whether another program of ours runs beside this one.
others() {
  for other in "$base"/*/pid; do
    [ "$other" = "$dir/pid" ] && continue
    { read -r other <"$other"; } 2>/dev/null || continue
    [ -d "/proc/$other" ] && return 0
  done
  return 1
}

# Sets $left to what is left of the session $1, of what was started with $2 in its environment and, where there is
# nothing else, of everything.
find_left() {
  stats=$(sed -n 's/^\([0-9]*\) (.*) \([A-Za-z]\) [0-9]* [0-9]* \([0-9]*\) .*/\1 \2 \3/p' /proc/[0-9]*/stat 2>/dev/null)
  marked=$(unset FABRO_SCRIPT; grep -slF "FABRO_SCRIPT=$2" /proc/[0-9]*/environ)
  found=
  known=" 1 "
  # shellcheck disable=SC2086
  set -- "$1" $stats
  session=$1
  shift
  while [ $# -ge 3 ]; do
    case $2 in
      Z | X | x) known="$known$1 " ;;
      *)
        if [ "$3" = "$session" ]; then found="$found $1"; fi
        if [ "$3" = 1 ]; then known="$known$1 "; fi
        ;;
    esac
    shift 3
  done
  for pid in $marked; do
    pid=${pid#/proc/}
    found="$found ${pid%/environ}"
  done
  if [ "$all" = 1 ] && ! others; then
    for pid in /proc/[0-9]*; do
      pid=${pid#/proc/}
      case $known in *" $pid "*) ;; *) found="$found $pid" ;; esac
    done
  fi
  left=
  for pid in $found; do
    if [ "$pid" != $$ ] && [ "$pid" != "$keep" ] && [ -d "/proc/$pid" ]; then left="$left $pid"; fi
  done
}

# Whether nothing is left within $3 twentieths of a second.
gone() {
  turns=$3
  while find_left "$1" "$2"; [ -n "$left" ]; do
    [ "$turns" -gt 0 ] || return 1
    turns=$((turns - 1))
    sleep 0.05 2>/dev/null || sleep 1
  done
}

# Sends the signal $1 to what is left.
send() {
  # shellcheck disable=SC2086
  if [ -n "$left" ]; then kill "-$1" $left 2>/dev/null; fi
}

# Ends what the session $1 and the mark $2 have left: a moment to finish, SIGTERM, two seconds, SIGKILL.
end_left() {
  gone "$1" "$2" 2 && return
  send TERM
  send CONT
  gone "$1" "$2" 40 && return
  kill_left "$1" "$2"
}

kill_left() {
  rounds=0
  until gone "$1" "$2" 1 || [ "$rounds" -ge 40 ]; do
    send KILL
    rounds=$((rounds + 1))
  done
}
keep=
