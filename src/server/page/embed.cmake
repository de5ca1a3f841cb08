# Writes the page's files as arrays of bytes: cmake -D FOLDER=... -D OUT=... -P embed.cmake. The
# program carries the page; what the browser gets is put together from these in page.c.
set(text "/* Made by src/server/page/embed.cmake. */\n#include \"page.h\"\n")
foreach(part html css markdown.js picture.js app.js)
    string(REPLACE "." "_" name ${part})
    set(file ${FOLDER}/${part})
    if(part STREQUAL html OR part STREQUAL css)
        set(file ${FOLDER}/page.${part})
    endif()
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
    string(APPEND text "const unsigned char page_${name}[] = {\n${bytes}};\n"
        "const size_t page_${name}_size = sizeof page_${name};\n")
endforeach()
file(WRITE ${OUT} "${text}")
