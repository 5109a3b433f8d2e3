#!/bin/sh
# NVIDIA Accelerated Graphics Driver for Linux-x86_64 @VERSION@ -- stand-in of the test bench, not NVIDIA's software.
# The first @SKIP@ lines are this script; the rest is a compressed archive of @NAME@.
skip=@SKIP@
size=@SIZE@
uncompressed_kb=@UNCOMPRESSED@
sum=@SUM@
version=@VERSION@
label="NVIDIA Accelerated Graphics Driver for Linux-x86_64 $version"
name=@NAME@

usage() {
    cat <<USAGE

$0 [options] : Installs $label

--info             Print embedded info.
--check            Check integrity of the archive.
-x, --extract-only Extract the contents, but do not run 'nvidia-installer'.
--target DIR       Extract in DIR.
--tmpdir DIR       Extract under DIR when the contents are not kept.
--keep             Do not delete the extracted contents when done.
-h, --help         Print usage for the common options.
-A, --advanced-options  Print usage for all options of nvidia-installer.
All other options are passed on to nvidia-installer.
USAGE
}

archive() {
    tail -n +$((skip + 1)) "$0"
}

verify() {
    printf 'Verifying archive integrity... '
    if [ "$(archive | wc -c)" -ne "$size" ] || [ "$(archive | sha256sum | cut -d ' ' -f 1)" != "$sum" ]; then
        echo "Error in check sums: $0 is incomplete or damaged" >&2
        exit 1
    fi
    echo OK
}

keep=n
run=y
target=
tmpdir=${TMPDIR:-/tmp}
passed=
quote() {
    printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}
while [ $# -gt 0 ]; do
    case $1 in
    --info)
        echo "Identification    : $label"
        echo "Target directory  : $name"
        echo "Uncompressed size : $uncompressed_kb KB"
        echo "Compression       : xz"
        echo "Date of packaging : @DATE@"
        echo "Application run after extraction : ./nvidia-installer"
        echo "The directory $name will be removed after extraction."
        exit 0 ;;
    --check) verify; exit 0 ;;
    --list) echo "Target directory: $name"; archive | xz -dc | tar tvf -; exit 0 ;;
    -x | --extract-only | -extract-only) run=n; keep=y ;;
    --keep) keep=y ;;
    --target) target=$2; shift ;;
    --tmpdir) tmpdir=$2; passed="$passed$(quote "--tmpdir=$2")"; shift ;;
    --tmpdir=*) tmpdir=${1#*=}; passed="$passed$(quote "$1")" ;;
    -h | --help) usage; exit 0 ;;
    *) passed="$passed$(quote "$1")" ;;
    esac
    shift
done

[ -d "$tmpdir" ] || { echo "The temporary directory $tmpdir does not exist." >&2; exit 1; }
if [ -z "$target" ]; then
    if [ "$keep" = y ]; then
        target=$PWD/$name
    else
        holder=$(mktemp -d "$tmpdir/selfgz.XXXXXXXX") || exit 1
        target=$holder/$name
    fi
fi
if [ "$keep" = y ] && [ -e "$target" ]; then
    echo "The directory '$target' already exists.  Please remove it or specify a different directory with --target." >&2
    exit 1
fi
mkdir -p "$target" || exit 1
verify
printf 'Uncompressing %s' "$label"
if ! archive | xz -dc | tar xf - -C "$target" --strip-components=1 --no-same-owner; then
    echo "Failed to uncompress the archive; is there enough space in $target?" >&2
    exit 1
fi
echo ......................
status=0
if [ "$run" = y ]; then
    cd "$target" || exit 1
    eval "set -- $passed"
    ./nvidia-installer "$@"
    status=$?
    cd / || exit 1
fi
[ "$keep" = y ] || rm -rf "${holder:-$target}"
exit $status
