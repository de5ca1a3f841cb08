#!/bin/sh
# links.sh NM LAW OBJECTS SOURCE: the objects of a module may use only symbols of modules that it
# sees, by the law (modules.txt). A module that sees the public headers may also call their functions
# (pi_...) that a module below it defines. A module must use symbols or headers of every module that
# it sees. Then the check tests itself: it must fail without a needed grant and with an unused one.
set -eu
nm=$1 law=$2 objects=$3 source=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed 's/^[^ ]* //' "$objects" | while read -r object; do
    [ -f "$object" ] || { echo "not built: $object"; exit 1; }
done
# "symbol: module symbol type" for every global symbol of every object
cut -d ' ' -f 1 "$objects" | uniq | while read -r module; do
    sed -n "s|^$module ||p" "$objects" | xargs -d '\n' "$nm" -g -P | grep -v ':$' |
        sed "s|^|symbol: $module |"
done >"$work/uses"
# "header: module name" and "include: module name"
cd "$source"
for module in $(cut -d : -f 1 "$law") public; do
    folder=src/$module
    [ "$module" = public ] && folder=include
    inner=$(sed -n "s|^\($module/[^:]*\):.*|-e ^src/\1/|p" "$law")
    find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' |
        grep -v -e '^$' $inner >"$work/files"
    sed -n "s|.*/\(.*\.h\)\$|header: $module \1|p" "$work/files"
    xargs -r cat <"$work/files" | sed -n "s|^# *include \"\(.*\)\"|include: $module \1|p"
done >>"$work/uses"

check() { # law
    awk '
        FNR == NR { sub(":", "", $1); row[$1] = FNR; sees[$1] = " " $0 " "; next }
        $1 == "header:" { owner_of_header[$3] = $2; next }
        $1 == "include:" { included[$2 " " $3]; next }
        $4 ~ /^[Uw]$/ { wanted[$2 " " $3]; next }
        { defined[$3] = $2; n_defined++ }
        END {
            for (i in included) {
                split(i, part, " ")
                used[part[1] " " owner_of_header[part[2]]]
            }
            for (w in wanted) {
                split(w, part, " ")
                module = part[1]; symbol = part[2]; owner = defined[symbol]
                if (owner == "" || owner == module) continue
                n_links++
                used[module " " owner]
                if (index(sees[module], " " owner " ")) continue
                if (index(sees[module], " public ") && symbol ~ /^pi_/ && row[owner] < row[module])
                    continue
                print module " may not use " symbol ", which belongs to " owner
                bad = 1
            }
            for (module in sees) {
                n = split(sees[module], part, " ")
                for (i = 2; i <= n; i++) {
                    if (module " " part[i] in used) continue
                    print module " sees " part[i] " without using it"
                    bad = 1
                }
            }
            if (n_defined < 1000 || n_links < 100) { # another output format of nm
                print "too few symbols: " n_defined + 0 " defined, " n_links + 0 " links"
                bad = 1
            }
            exit bad
        }' "$1" "$work/uses"
}

expect() { # LAW MESSAGE
    if check "$1" >"$work/said" || ! grep -q "^$2" "$work/said"; then
        echo "a wrong law is not found: $2"
        exit 1
    fi
}

check "$law"
for pair in 'gguf base' 'engine cpu' 'engine exec/cpu' 'exec/cpu base' 'api engine' 'cli public'; do
    module=${pair% *} seen=${pair#* }
    sed "\,^$module:,s, $seen\( \|\$\),\1," "$law" >"$work/law"
    expect "$work/law" "$module may not use"
done
sed '/^quant:/s/$/ gguf/' "$law" >"$work/law"
expect "$work/law" 'quant sees gguf without using it'
echo "links: $(wc -l <"$law") modules, $(wc -l <"$objects") objects"
