# shellcheck shell=bash
# What scripts that pack programs for other machines have in common; sourced.

# copy_libraries FILE WHERE
# Copies every shared library that a program or library loads, by its soname, to the folder that WHERE names for it: a
# function that gets the soname and prints a folder, or nothing for a library that is to be left out. The driver's own stay
# where they are. Status 1 and names on standard output when some are not on this machine either.
copy_libraries() {
  local file=$1 where=$2 library path folder
  # ldd names each library as "soname => path", and the loader by its path only.
  while read -r library path; do
    case $library in libcuda.so* | libnvidia-*) continue ;; esac
    folder=$("$where" "$library")
    [[ -z $folder || -e $folder/$library ]] || cp -L "$path" "$folder/$library"
  done < <(ldd "$file" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}
                              $1 ~ /^\/.*ld-linux/ {count = split($1, part, "/"); print part[count], $1}')
  ldd "$file" | awk '/not found/ && $1 !~ /^lib(cuda\.so|nvidia-)/ {printf "%s ", $1; found = 1} END {exit found}'
}

# The C library and the loader, of which a machine has its own.
is_of_libc() {
  case $1 in
    ld-linux* | libc.so* | libm.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libutil.so*) return 0 ;;
  esac
  return 1
}
