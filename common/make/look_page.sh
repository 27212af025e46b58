#!/bin/bash
# Puts the page of a look inside together: look_page.sh FOLDER >PAGE. At its markers page.html gets the
# styles and the scripts that FOLDER/files.txt lists, in that order; they stand in elements of the page. The
# data's marker stays: the virtual GPU puts the data there.
set -eu -o pipefail
folder=$1

files() { { grep -v '^ *#' "$folder/files.txt" || true; } | { grep "\.$1\$" || true; }; }

# $1: ending, $2: element. What would end the element before its end is refused.
put() {
  local file
  for file in $(files "$1"); do
    if grep -qi "</$2\|<!--" "$folder/$file"; then
      echo "$folder/$file: must not hold </$2 or <!--, which would end the element in the page" >&2
      exit 1
    fi
    cat "$folder/$file"
    echo
  done
}

for marker in css js data; do
  if [ "$(grep -cx "<!-- look:$marker -->" "$folder/page.html")" != 1 ]; then
    echo "$folder/page.html: one line must be <!-- look:$marker -->" >&2
    exit 1
  fi
done
while IFS= read -r line; do
  case $line in
    '<!-- look:css -->') put css style ;;
    '<!-- look:js -->') put js script ;;
    *) printf '%s\n' "$line" ;;
  esac
done <"$folder/page.html"
